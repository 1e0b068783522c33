"""The guards wired into a TRL `GRPOTrainer` (or any Hugging Face Trainer, as far as they apply).

    from rlprobe.integrations.guarding import guard

    print(guard(trainer, task="accuracy"))
    trainer.train()

Public hooks are used where there are any: reward functions, `model.generate`, callbacks. The
advantages have none in TRL; the trainer's own scoring methods are wrapped where they exist. What
could not be applied is told. With `rlprobe.integrations.trl.attach`, in either order, what is
recorded is what the guards made of it, and skipped updates are recorded as such.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rlprobe.errors import UsageError
from rlprobe.guards._advantages import group_advantages
from rlprobe.guards._stopping import StopOnRepetition
from rlprobe.guards._update import UpdateGuard
from rlprobe.integrations._wrapping import Around, Wrapped

_SCORE = "_generate_and_score_completions"
_REWARD = "_calculate_rewards"
_SHARDED = ("DEEPSPEED", "FSDP", "MEGATRON_LM")


@dataclass
class Guarded:
    """What `guard` did.

    Attributes:
        applied: guards in force, with the hook each uses.
        not_applied: guards that are not, with the reason.
        update: the update guard, for its counts; None if it is not in force.
        stopped: rollouts that were ended because they looped.
        clamped: rollouts whose advantage was set to 0.
    """

    applied: dict[str, str] = field(default_factory=dict)
    not_applied: dict[str, str] = field(default_factory=dict)
    update: UpdateGuard | None = None
    stopped: int = 0
    clamped: int = 0

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

    Call it once, after the trainer is made and before it trains.

    Args:
        task: name of the reward function that is the task; the functions after it are paid only
            where it reached `success`. None: rewards are left as they are.
        success: task reward from which the task counts as solved.
        update: the update guard to use; None: one with its defaults.
        repetition: end rollouts that loop.

    Raises:
        UsageError: `task` is no reward function of the trainer, or `success` is not finite.
    """
    if not math.isfinite(success):
        raise UsageError(f"Couldn't gate at 'success' {success}: must be finite")
    done = Guarded()
    _guard_rewards(trainer, task, success, done)
    _guard_advantages(trainer, done)
    if repetition:
        _guard_generation(trainer, done)
    _guard_updates(trainer, update or UpdateGuard(), done)
    return done


class _Hook:
    """A method of one instance with something around it; see `Wrapped`, which it may stand under.

    It has slots and no `__dict__`: whatever wraps it must not take over what it holds.
    """

    __slots__ = ("around", "name", "original", "owner")

    def __init__(self, owner: Any, name: str, original: Callable[..., Any], around: Around) -> None:
        self.owner, self.name, self.original, self.around = owner, name, original, around

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.around(self.original, *args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.owner, self.name)  # a copy of the owner gets the plain method back


def _wrap(owner: Any, name: str, around: Around) -> bool:
    """Wrap a method underneath a recorder's wrappers: it sees what the guards made of it."""
    method = getattr(owner, name, None)
    if not callable(method):
        return False
    outer: Wrapped | None = None
    while isinstance(method, Wrapped):
        outer, method = method, method.original
    hook = _Hook(owner, name, method, around)
    if outer is None:
        setattr(owner, name, hook)
    else:
        outer.original = hook
    return True


# --- rewards --------------------------------------------------------------------------------------


def _guard_rewards(trainer: Any, task: str | None, success: float, done: Guarded) -> None:
    functions = getattr(trainer, "reward_funcs", None)
    if task is None:
        done.not_applied["rewards"] = "no task reward was named (task=…)"
        return
    names = _names(trainer, functions or ())
    if task not in names:
        known = ", ".join(names) or "none"
        raise UsageError(f"Couldn't gate by 'task' {task!r}: the trainer's rewards are {known}")
    place = names.index(task)
    if functions is None or _strange(functions[place]):
        done.not_applied["rewards"] = f"{task} is a model or asynchronous: it is not known in time"
        return
    gate = _Gate(success)
    functions[place] = gate.noting(functions[place])
    gated = [i for i in range(place + 1, len(functions)) if not _strange(functions[i])]
    for index in gated:
        functions[index] = gate.gating(functions[index])
    done.applied["rewards"] = f"{_listed(names, gated)} paid only where {task} ≥ {success:g}"
    for index in sorted({*range(len(functions))} - {*gated, place}):
        done.not_applied[f"reward {names[index]}"] = (
            f"it is computed before {task}: list the task first"
            if index < place
            else "it is a model or asynchronous, and has no hook"
        )


def _names(trainer: Any, functions: Any) -> list[str]:
    told = getattr(trainer, "reward_func_names", None)
    return [str(name) for name in told or [getattr(f, "__name__", "") for f in functions]]


def _listed(names: list[str], chosen: list[int]) -> str:
    return ", ".join(names[index] for index in chosen) or "no auxiliary reward"


def _strange(function: Any) -> bool:
    """A reward that is not an ordinary function: a model, or asynchronous."""
    call = getattr(function, "__call__", None)  # noqa: B004 - the method itself is asked about
    asynchronous = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
    return asynchronous or hasattr(function, "forward")


class _Gate:
    """Remembers where the task was solved, and pays the other rewards only there."""

    def __init__(self, success: float) -> None:
        self.success = success
        self.solved: list[bool] = []

    def noting(self, task: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*args: Any, **kwargs: Any) -> Any:
            paid = task(*args, **kwargs)
            self.solved = [value is not None and float(value) >= self.success for value in paid]
            return paid

        noting.__name__ = getattr(task, "__name__", "task")
        return noting

    def gating(self, auxiliary: Callable[..., Any]) -> Callable[..., Any]:
        def gating(*args: Any, **kwargs: Any) -> Any:
            paid = auxiliary(*args, **kwargs)
            pairs = zip(paid, self.solved, strict=True)
            return [value if ok or value is None else 0.0 for value, ok in pairs]

        gating.__name__ = getattr(auxiliary, "__name__", "auxiliary")
        return gating


# --- advantages -----------------------------------------------------------------------------------


def _guard_advantages(trainer: Any, done: Guarded) -> None:
    if not hasattr(trainer, "reward_funcs") or not getattr(trainer, "num_generations", None):
        done.not_applied["advantages"] = "the trainer has no groups"
        return
    if (
        getattr(trainer, "multi_objective_aggregation", "sum_then_normalize")
        != "sum_then_normalize"
    ):
        done.not_applied["advantages"] = "each reward is normalised on its own"
        return
    clamp = _Clamp(trainer, done)
    if not callable(getattr(trainer, _SCORE, None)) or not _wrap(
        trainer, _REWARD, clamp.around_rewards
    ):
        done.not_applied["advantages"] = f"this trainer has no {_SCORE} with {_REWARD}"
        return
    _wrap(trainer, _SCORE, clamp.around_scoring)
    done.applied["advantages"] = f"wrapped {_SCORE} and {_REWARD}: TRL has no public hook"


class _Clamp:
    """Sets the trainer's advantages to 0 in groups whose rewards do not differ."""

    def __init__(self, trainer: Any, done: Guarded) -> None:
        self.trainer, self.done = trainer, done
        self.rewards: Any = None

    def around_rewards(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.rewards = original(*args, **kwargs)  # of all ranks, by function
        return self.rewards

    def around_scoring(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.rewards = None
        output = original(*args, **kwargs)
        if self.rewards is not None:
            output["advantages"] = self._clamped(output["advantages"])
        return output

    def _clamped(self, advantages: Any) -> Any:
        rows = len(advantages)
        start = int(self.trainer.accelerator.process_index) * rows
        flat = self._flat()[start : start + rows]
        self.done.clamped += int(flat.sum())
        wide = flat.reshape((-1,) + (1,) * (advantages.ndim - 1)).to(advantages.device)
        return advantages.masked_fill(wide, 0.0)

    def _flat(self) -> Any:
        """Which rollouts, of all ranks, belong to a group without spread, or have no reward."""
        weights = self.trainer.reward_weights.to(self.rewards.device)
        total = (self.rewards * weights).nansum(dim=1)
        unscored = self.rewards.isnan().all(dim=1)
        total[unscored] = math.nan
        if bool(unscored.all()):
            return unscored
        training = bool(self.trainer.model.training)
        size = self.trainer.num_generations if training else self._eval_size()
        return group_advantages(total, group_size=int(size)).clamped

    def _eval_size(self) -> int:
        return int(getattr(self.trainer, "num_generations_eval", self.trainer.num_generations))


# --- generation -----------------------------------------------------------------------------------


def _guard_generation(trainer: Any, done: Guarded) -> None:
    reason = _no_generation(trainer)
    if reason:
        done.not_applied["repetition"] = reason
        return
    _wrap(trainer.model, "generate", _Stopper(trainer, done).around)
    done.applied["repetition"] = "stopping criterion of model.generate"


def _no_generation(trainer: Any) -> str:
    if not callable(getattr(trainer, _SCORE, None)):
        return "the trainer does not generate"
    if getattr(trainer, "use_vllm", False):
        return "vLLM generates: give it stop_on_repetition per request (docs/guards.md)"
    if getattr(trainer, "use_transformers_paged", False):
        return "paged generation takes no stopping criteria"
    if not callable(getattr(trainer.model, "generate", None)):
        return "the model cannot generate"
    return ""


class _Stopper:
    """Ends looping rollouts of `model.generate`."""

    def __init__(self, trainer: Any, done: Guarded) -> None:
        self.trainer, self.done = trainer, done

    def around(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        from transformers import StoppingCriteriaList

        criteria = [*(kwargs.pop("stopping_criteria", None) or ()), StopOnRepetition()]
        output = original(*args, stopping_criteria=StoppingCriteriaList(criteria), **kwargs)
        prompts = kwargs.get("input_ids", args[0] if args else None)
        ids = getattr(output, "sequences", output)
        if prompts is not None:
            self._end(ids[:, prompts.shape[1] :])
        return output

    def _end(self, completions: Any) -> None:
        """Close what was stopped: `generate` fills it up with padding, which TRL would train on.

        The first padding token becomes the end token, as it is anyway where both are the same.
        """
        tokenizer = getattr(self.trainer, "_tokenizer", None) or self.trainer.processing_class
        end, padding = tokenizer.eos_token_id, tokenizer.pad_token_id
        if end is None or padding is None or not completions.shape[1]:
            return
        ended = (completions == end).any(dim=1)
        for row in ((completions[:, -1] == padding) & ~ended).nonzero().flatten().tolist():
            kept = int((completions[row] != padding).nonzero().max())  # it looped: not all padding
            completions[row, kept + 1] = end
            self.done.stopped += 1


# --- updates --------------------------------------------------------------------------------------


def _guard_updates(trainer: Any, update: UpdateGuard, done: Guarded) -> None:
    kind = str(getattr(trainer.accelerator, "distributed_type", ""))
    if any(word in kind.upper() for word in _SHARDED):
        done.not_applied["updates"] = f"{kind}: the optimizer does not step here alone"
        return
    skipper = _Skipper(trainer, update)
    _wrap(trainer.accelerator, "clip_grad_norm_", skipper.around_clipping)
    trainer.add_callback(_callback(skipper))
    done.update = update
    done.applied["updates"] = "callback before the optimizer step"


class _Skipper:
    """Drops the gradients of a step that must not be taken: the optimizer then leaves all as is."""

    def __init__(self, trainer: Any, update: UpdateGuard) -> None:
        self.trainer, self.update = trainer, update
        self.norm: float | None = None

    def around_clipping(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        norm = original(*args, **kwargs)
        self.norm = None if norm is None else float(norm)
        return norm

    def before_update(self, optimizer: Any, step: int) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        norm, self.norm = self._measured(parameters), None
        if norm is None or (self._scaled() and not math.isfinite(norm)):
            return  # a loss scaler finds its scale by overflowing, and skips by itself
        try:
            skip = not self.update.allows(norm)
        except BaseException:
            self._record(step, norm)
            raise
        if skip:
            for parameter in parameters:
                parameter.grad = None
            self._record(step, norm)

    def _measured(self, parameters: list[Any]) -> float | None:
        """The norm before clipping; where nothing was clipped, it is taken here."""
        if self.norm is not None:
            return self.norm
        from rlprobe.integrations import _norms as norms

        total = norms.total_norm([p.grad.detach() for p in parameters if p.grad is not None])
        return None if total is None else float(total)

    def _scaled(self) -> bool:
        scaler = getattr(self.trainer.accelerator, "scaler", None)
        return scaler is not None and bool(scaler.is_enabled())

    def _record(self, step: int, norm: float) -> None:
        """In the recording of this trainer, if there is one."""
        from rlprobe.integrations._callback import RecorderCallback

        for callback in self.trainer.callback_handler.callbacks:
            if isinstance(callback, RecorderCallback) and callback.session is not None:
                session = callback.session
                session.steps.note_skipped()
                message = f"gradient norm {norm:g}"
                session.recorder.event("update_skipped", message, step=step, grad_norm=norm)


def _callback(skipper: _Skipper) -> Any:
    from transformers import TrainerCallback

    class SkipUpdates(TrainerCallback):  # type: ignore[misc]
        """Asks the update guard before each optimizer step."""

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            skipper.before_update(kwargs["optimizer"], int(state.global_step) + 1)

    return SkipUpdates()
