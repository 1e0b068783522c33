"""The guards wired into a TRL `GRPOTrainer` (or any Hugging Face Trainer, as far as they apply).

    from rlprobe.integrations.guarding import guard

    print(guard(trainer, task="accuracy"))
    trainer.train()

Public hooks are used where there are any: reward functions, `model.generate`, callbacks,
`accelerator.clip_grad_norm_`. The advantages have none in TRL; the trainer's own scoring method is
wrapped where it exists. What could not be applied is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlprobe.errors import UsageError
from rlprobe.guards.advantages import group_advantages
from rlprobe.guards.stopping import StopOnRepetition
from rlprobe.guards.update import UpdateGuard
from rlprobe.integrations.wrapping import wrap

_SCORE = "_generate_and_score_completions"


@dataclass
class Guarded:
    """What `guard` did.

    Attributes:
        applied: guards in force, with the hook each uses.
        not_applied: guards that are not, with the reason.
        update: the update guard, for its counts; None if it is not in force.
    """

    applied: dict[str, str] = field(default_factory=dict)
    not_applied: dict[str, str] = field(default_factory=dict)
    update: UpdateGuard | None = None

    def __str__(self) -> str:
        lines = [f"guarded  {name} ({how})" for name, how in self.applied.items()]
        lines += [f"not      {name}: {why}" for name, why in self.not_applied.items()]
        return "\n".join(lines)


def guard(
    trainer: Any,
    *,
    task: str | None = None,
    success: float = 1.0,
    update: UpdateGuard | None = None,
    repetition: bool = True,
) -> Guarded:
    """Put the guards around a trainer's advantages, rewards, generation and updates.

    Args:
        task: name of the reward function that is the task; the functions after it are paid only
            where it reached `success`. None: rewards are left as they are.
        update: the update guard to use; None: one with its defaults.
        repetition: end rollouts that loop.

    Raises:
        UsageError: `task` is no reward function of the trainer.
    """
    done = Guarded()
    _guard_rewards(trainer, task, success, done)
    _guard_advantages(trainer, done)  # after the rewards, so that it sees what is really paid
    if repetition:
        _guard_generation(trainer, done)
    _guard_updates(trainer, update or UpdateGuard(), done)
    return done


def _guard_advantages(trainer: Any, done: Guarded) -> None:
    size = getattr(trainer, "num_generations", None)
    rewards = _RewardSum(trainer) if hasattr(trainer, "reward_funcs") else None
    if rewards is None or not size:
        done.not_applied["advantages"] = "the trainer has no groups"
        return

    def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        rewards.begin()
        output = original(*args, **kwargs)
        total = rewards.total()
        rows = len(output["advantages"])
        if total is not None and len(total) == rows and rows % int(size) == 0:
            flat = group_advantages(total, group_size=int(size)).clamped
            keep = output["advantages"].new_tensor((~flat).astype(float))
            output["advantages"] = output["advantages"] * keep.reshape(
                (-1,) + (1,) * (output["advantages"].ndim - 1)
            )
        return output

    if wrap(trainer, _SCORE, around):
        done.applied["advantages"] = f"wrapped {_SCORE}: TRL has no public hook"
    else:
        done.not_applied["advantages"] = f"this trainer has no {_SCORE}"


class _RewardSum:
    """Adds up what the reward functions return, as the trainer does."""

    def __init__(self, trainer: Any) -> None:
        import numpy as np

        self._np = np
        self._weights = trainer.reward_weights.tolist()
        self._parts: dict[int, Any] = {}
        for index, function in enumerate(trainer.reward_funcs):
            if callable(function) and not hasattr(function, "forward"):
                trainer.reward_funcs[index] = self._listen(index, function)

    def _listen(self, index: int, function: Callable[..., Any]) -> Callable[..., Any]:
        def listening(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            self._parts[index] = result
            return result

        listening.__name__ = getattr(function, "__name__", f"reward_{index}")
        return listening

    def begin(self) -> None:
        self._parts = {}

    def total(self) -> Any:
        """Weighted sum per rollout; None where some function is a model or asynchronous."""
        if len(self._parts) != len(self._weights):
            return None
        columns = [self._column(self._parts[i]) * w for i, w in enumerate(self._weights)]
        return self._np.nansum(columns, axis=0)

    def _column(self, values: Sequence[float | None]) -> Any:
        return self._np.array([self._np.nan if v is None else float(v) for v in values])


def _guard_rewards(trainer: Any, task: str | None, success: float, done: Guarded) -> None:
    if task is None:
        done.not_applied["rewards"] = "no task reward was named (task=…)"
        return
    names = [getattr(f, "__name__", "") for f in getattr(trainer, "reward_funcs", [])]
    if task not in names:
        raise UsageError(
            f"Couldn't gate by task reward '{task}': the trainer has {', '.join(names) or 'none'}"
        )
    place = names.index(task)
    solved: list[bool] = []

    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            solved[:] = [value is not None and float(value) >= success for value in result]
            return result

        noting.__name__ = task
        return noting

    def gate(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def gated(*args: Any, **kwargs: Any) -> Any:
            paid = function(*args, **kwargs)
            return [value if ok else 0.0 for value, ok in zip(paid, solved, strict=True)]

        gated.__name__ = name
        return gated

    functions = trainer.reward_funcs
    functions[place] = note(functions[place])
    for index in range(place + 1, len(functions)):
        functions[index] = gate(functions[index], names[index])
    done.applied["rewards"] = f"{len(functions) - place - 1} auxiliary rewards gated by {task}"
    if place:
        done.not_applied["rewards before the task"] = (
            f"{', '.join(names[:place])} are computed before {task}: list the task first"
        )


def _guard_generation(trainer: Any, done: Guarded) -> None:
    if getattr(trainer, "use_vllm", False):
        done.not_applied["repetition"] = (
            "vLLM generates: give it stop_on_repetition per request (docs/guards.md)"
        )
        return

    def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        criteria = [*(kwargs.pop("stopping_criteria", None) or ()), StopOnRepetition()]
        from transformers import StoppingCriteriaList

        return original(*args, stopping_criteria=StoppingCriteriaList(criteria), **kwargs)

    model = getattr(trainer, "model", None)
    if model is not None and wrap(model, "generate", around):
        done.applied["repetition"] = "stopping criterion of model.generate"
    else:
        done.not_applied["repetition"] = "the model cannot generate"


def _guard_updates(trainer: Any, update: UpdateGuard, done: Guarded) -> None:
    from transformers import TrainerCallback

    norms: list[float] = []

    def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        norm = original(*args, **kwargs)
        if norm is not None:
            norms[:] = [float(norm)]
        return norm

    class SkipUpdates(TrainerCallback):  # type: ignore[misc]
        """Drops the gradients of a step that must not be taken: the optimizer then skips it."""

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if norms and not update.allows(norms.pop()):
                for parameter in kwargs["model"].parameters():
                    parameter.grad = None

    clips = float(getattr(trainer.args, "max_grad_norm", 0) or 0) > 0
    if not clips or not wrap(trainer.accelerator, "clip_grad_norm_", around):
        done.not_applied["updates"] = "max_grad_norm is 0, so no gradient norm is computed"
        return
    trainer.add_callback(SkipUpdates())
    done.update = update
    done.applied["updates"] = "callback before the optimizer step"
