"""One optimizer step after another: what each is measured by, and when it is written."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from rlprobe import numbers
from rlprobe.integrations import _norms as norms
from rlprobe.integrations._nonfinite import GradientWatch, LossWatch, WeightWatch
from rlprobe.integrations._probes import Probes
from rlprobe.integrations._rollouts import Rollouts
from rlprobe.integrations._wrapping import wrap

_JUMP = 3.0  # factor between neighbouring learning rates that no warm-up makes


class Steps:
    """The probes of a trainer's steps, in the order in which the Trainer calls them.

    `begin` → (`training_step`, wrapped) → clipping (wrapped) → `before_update` → `after_update`
    → `end` → `logged`.
    """

    def __init__(self, trainer: Any, recorder: Any, probes: Probes, rollouts: Rollouts) -> None:
        self._trainer = trainer
        self._recorder = recorder
        self._probes = probes
        self._rollouts = rollouts
        self._parameters: list[norms.Named] = []
        self._watch()
        self._reset(0)

    def _watch(self) -> None:
        eager = bool(getattr(self._trainer.args, "logging_nan_inf_filter", False))
        self.gradient = GradientWatch(self._recorder)
        self.weight = WeightWatch(self._recorder, lambda: self._parameters)
        self.loss = LossWatch(self._recorder, eager=eager)
        self._lr = LearningRate(self._recorder)

    def _reset(self, step: int) -> None:
        self._step = step
        self._began = time.perf_counter()
        self._row: dict[str, Any] = {}  # columns of this step's global row
        self._param_norm: Any = None
        self._grad_norm: Any = None
        self._own_norm: float | None = None  # of the gradients that this process can see
        self._checked = False

    def install(self) -> None:
        """Hook into the trainer's instance."""
        wrap(self._trainer, "training_step", self._around_training_step)
        wrap(self._trainer.accelerator, "clip_grad_norm_", self._around_clipping)

    def start(self) -> None:
        """Training begins: from now on the parameters are the ones that are trained."""
        self._watch()
        named = self._trainer.model.named_parameters()
        self._parameters = [(name.removeprefix("module."), value) for name, value in named]

    def forget(self) -> None:
        """Training is over: let go of the model."""
        self._parameters = []

    # --- in the order of a step ----------------------------------------------------------------

    def begin(self, completed: int) -> None:
        """Before a step's first micro-batch; whatever touched the weights until now has done so."""
        self._reset(completed + 1)
        self._param_norm = self._probes.run("weight_norm", self.weight.measure, completed)

    def _around_training_step(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        loss = original(*args, **kwargs)
        if isinstance(loss, torch.Tensor):
            self._probes.run("loss", self.loss.add, self._step, loss)
        return loss

    def _around_clipping(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self._checked:
            self._probes.run("gradient", self._check)
        norm = original(*args, **kwargs)
        self._grad_norm = norm
        return norm

    def _check(self) -> None:
        """Look at gradients, and at what the device still owes, with one wait."""
        self._checked = True
        grads = norms.gradients(self._parameters)
        norm = norms.total_norm([grad for _, grad in grads])
        waiting = {"gradient": norm, "weight": self.weight.pending}
        if norm is not None and norm.device.type != "cpu":
            waiting["loss"] = self.loss.step_loss
        asked = {name: value for name, value in waiting.items() if value is not None}
        known = dict(zip(asked, norms.read(list(asked.values())), strict=True))
        if "weight" in known:
            self._param_norm = known["weight"]
            self.weight.settle(known["weight"])
        if "loss" in known:
            self.loss.judge(self._step, known["loss"])
        self._own_norm = known.get("gradient")
        self._judge_gradient(self._own_norm, grads)

    def _judge_gradient(self, norm: float | None, grads: list[norms.Named]) -> None:
        if self._grad_norm is None:
            self._grad_norm = norm
        if self._scaler() is None:
            self._row |= self.gradient.judge(self._step, norm, grads)
        elif norm is not None and not math.isfinite(norm):
            # A loss scaler finds its scale by overflowing: the update is skipped, no harm is done.
            found = norms.damage(grads)
            if found is not None:
                self._row |= {"nan_count": found.nan_count, "inf_count": found.inf_count}

    def _scaler(self) -> Any:
        scaler = getattr(self._trainer.accelerator, "scaler", None)
        return scaler if scaler is not None and scaler.is_enabled() else None

    def before_update(self) -> None:
        """Before the optimizer steps: where nothing clipped, the gradients are looked at here."""
        if not self._checked:
            self._probes.run("gradient", self._check)
        told = _scalar(self._grad_norm)
        if self._own_norm is None and told is not None and self._scaler() is None:
            self._probes.run("gradient", self._judge_told, told)

    def _judge_told(self, norm: Any) -> None:
        self.gradient.judge_reported(self._step, float(norm))

    def after_update(self, optimizer: Any, scheduler: Any) -> None:
        """After the optimizer stepped, before the schedule does."""
        self._probes.run("lr", self._lr.see, self._step, optimizer, scheduler)
        if getattr(self._trainer.accelerator, "optimizer_step_was_skipped", False):
            self._probes.run("skipped", self._skipped)

    def note_skipped(self) -> None:
        """The update of this step is not taken."""
        self._row["update_skipped"] = 1.0

    def _skipped(self) -> None:
        self.note_skipped()
        scaler = self._scaler()
        if scaler is not None:
            scale = float(scaler.get_scale())
            self._row["loss_scale"] = scale
            self._recorder.event(
                "loss_scale_changed", f"update skipped; the scale is {scale:g}", step=self._step
            )

    def end(self, *, logged: bool) -> None:
        """After the step: write this rank's row, and a global one if the Trainer writes none."""
        own = {
            "loss": self.loss.end_step(),
            "grad_norm": _scalar(self._grad_norm),
            "param_norm": self._param_norm,
            "lr": self._lr.last,
            "step_time": time.perf_counter() - self._began,
            "reward_mean": self._rollouts.reward_mean.take(),
            "completion_length_mean": self._rollouts.length_mean.take(),
            **self._row,
        }
        self._recorder.rank_step(self._step, **{k: v for k, v in own.items() if v is not None})
        if not logged:
            between = {"grad_norm": own["grad_norm"], "learning_rate": self._lr.last, **self._row}
            present = {name: value for name, value in between.items() if value is not None}
            self._recorder.step(self._step, **present)

    def logged(self, step: int, logs: Mapping[str, Any]) -> dict[str, Any]:
        """The row to record for one that the Trainer logs: the same, with the true loss."""
        row = {str(key): value for key, value in logs.items() if _is_number(value)}
        if step == self._step:
            row |= self._row
        if "loss" in row:
            true = self.loss.end_window()
            if true is not None and not math.isfinite(true):
                row["loss_logged"], row["loss"] = row["loss"], true
        return row


class LearningRate:
    """Notices when the learning rate jumps where the schedule did not say so."""

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self.last: float | None = None

    def see(self, step: int, optimizer: Any, scheduler: Any) -> None:
        """Look at the rate that this step's update used."""
        before, rate = self.last, float(optimizer.param_groups[0]["lr"])
        announced = self._scheduled(scheduler)
        self.last = rate
        if not before or not rate:
            return
        if self._recorder.rank_id != 0:
            return
        factor = rate / before
        planned = announced is not None and math.isclose(rate, announced, rel_tol=1e-6)
        if factor > _JUMP or (factor < 1 / _JUMP and not planned):
            self._recorder.event(
                "lr_changed",
                f"learning rate {numbers.short(before)} -> {numbers.short(rate)}",
                step=step,
                before=before,
                after=rate,
                scheduled=planned,
            )

    def _scheduled(self, scheduler: Any) -> float | None:
        rates = getattr(scheduler, "_last_lr", None) or getattr(
            getattr(scheduler, "scheduler", None), "_last_lr", None
        )
        return float(rates[0]) if rates else None


def _is_number(value: Any) -> bool:
    if isinstance(value, int | float):
        return True
    return getattr(value, "ndim", None) == 0 and hasattr(value, "item")


def _scalar(value: Any) -> Any:
    """A norm as something the recorder takes; a sharded one would need a collective to be read."""
    return None if hasattr(value, "to_local") else value
