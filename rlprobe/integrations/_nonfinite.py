"""Watches for NaN and Inf: in gradients before clipping, in weights, in the true loss.

Each watch reports once per episode: at the first bad step, and again after it was good in between.
On an accelerator, the three norms of a step are read together, so that a step waits for the device
once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from rlprobe.integrations import _norms as norms

Parameters = Callable[[], Sequence[norms.Named]]


class GradientWatch:
    """Judges the gradients of a step, before anything clips them.

    Clipping by a norm that is NaN turns every gradient into NaN, and by Inf every one into zero or
    NaN: afterwards nobody can tell where it began.
    """

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self._bad = False

    def judge(self, step: int, norm: float | None, grads: Sequence[norms.Named]) -> dict[str, Any]:
        """Columns for the step's row: the counts if something is not finite, else nothing."""
        if norm is None:
            return {}
        if math.isfinite(norm):
            self._bad = False
            return {}
        damage = norms.damage(grads)
        if damage is None:
            return {}
        self._report(step, damage)
        return {"nan_count": damage.nan_count, "inf_count": damage.inf_count}

    def judge_reported(self, step: int, norm: float) -> None:
        """The same where only the framework's own norm is known (DeepSpeed keeps the gradients)."""
        if math.isfinite(norm):
            self._bad = False
            return
        self._report(step, norms.Damage(0, 0, ()), "the gradient norm is not finite")

    def _report(self, step: int, damage: norms.Damage, message: str = "") -> None:
        if not self._bad:
            self._bad = True
            if damage.overflow:
                message = "the gradient norm overflows; every gradient by itself is finite"
            self._recorder.nan_detected(
                step,
                "gradient",
                nan_count=damage.nan_count,
                inf_count=damage.inf_count,
                names=damage.names,
                message=message,
            )


class WeightWatch:
    """Judges the trainable weights as they are after a number of completed steps."""

    def __init__(self, recorder: Any, parameters: Parameters) -> None:
        self._recorder = recorder
        self._parameters = parameters
        self._bad = False
        self._pending: tuple[int, torch.Tensor] | None = None

    def measure(self, step: int) -> float | None:
        """Take the norm; on the CPU judge it at once, on a device leave it for `settle`."""
        tensors = [tensor for _, tensor in norms.trainable(self._parameters())]
        norm = norms.total_norm(tensors)
        if norm is None:
            return None
        if norm.device.type != "cpu":
            self._pending = step, norm
            return None
        value = float(norm)
        self._judge(step, value)
        return value

    @property
    def pending(self) -> torch.Tensor | None:
        """A norm that was measured and not read yet."""
        return None if self._pending is None else self._pending[1]

    def settle(self, value: float) -> None:
        """Judge the pending norm, now that it was read."""
        if self._pending is not None:
            step, _ = self._pending
            self._pending = None
            self._judge(step, value)

    def check(self, step: int) -> None:
        """Measure and judge now, whatever it costs."""
        self.measure(step)
        waiting = self.pending
        if waiting is not None:
            self.settle(float(waiting))

    def _judge(self, step: int, norm: float) -> None:
        if math.isfinite(norm):
            self._bad = False
            return
        if self._bad:
            return
        damage = norms.damage(norms.trainable(self._parameters()))
        if damage is None:
            return
        self._bad = True
        self._recorder.nan_detected(
            step,
            "weight",
            nan_count=damage.nan_count,
            inf_count=damage.inf_count,
            names=damage.names,
        )


class LossWatch:
    """Keeps the loss as it was computed, before the Trainer's filter hides a NaN.

    Sums stay on the device until they are asked for. `eager`: the Trainer itself waits for every
    micro-batch's loss (`logging_nan_inf_filter`), so looking at it costs nothing more.
    """

    def __init__(self, recorder: Any, *, eager: bool) -> None:
        self._recorder = recorder
        self._eager = eager
        self._bad_before = False  # the step before this one was reported, or followed one that was
        self._bad = False
        self._step: torch.Tensor | None = None
        self._window: torch.Tensor | None = None
        self._window_steps = 0

    def add(self, step: int, loss: torch.Tensor) -> None:
        """One micro-batch's loss, already divided by the accumulation steps."""
        loss = loss.detach()
        self._step = loss.clone() if self._step is None else self._step + loss
        if self._eager or loss.device.type == "cpu":
            self.judge(step, float(loss))

    def judge(self, step: int, value: float) -> None:
        """Report a loss that is not finite."""
        if math.isfinite(value):
            return
        if not (self._bad or self._bad_before):
            self._recorder.nan_detected(
                step,
                "loss",
                nan_count=int(math.isnan(value)),
                inf_count=int(math.isinf(value)),
                message=f"the loss is {value}",
            )
        self._bad = True

    @property
    def step_loss(self) -> torch.Tensor | None:
        """The loss of the step so far."""
        return self._step

    def end_step(self) -> torch.Tensor | None:
        """The loss of the step that ends."""
        loss, self._step = self._step, None
        if loss is not None:
            self._window = loss if self._window is None else self._window + loss
            self._window_steps += 1
        self._bad_before, self._bad = self._bad, False
        return loss

    def end_window(self) -> float | None:
        """The true mean loss since the last logged row."""
        window, self._window = self._window, None
        steps, self._window_steps = self._window_steps, 0
        return None if window is None else float(window) / max(steps, 1)
