"""One trainer's recording: opened when it is attached, closed when training ends, in any way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlprobe import schema
from rlprobe.integrations import _checkpoints as checkpoints
from rlprobe.integrations import _facts as facts
from rlprobe.integrations._probes import Probes, Relay
from rlprobe.integrations._rollouts import Rollouts
from rlprobe.integrations._steps import Steps
from rlprobe.integrations._wrapping import wrap
from rlprobe.recorder import Recorder
from rlprobe.taps import place
from rlprobe.taps.hub import HUB

_SUMMARY = "train_runtime"  # the key that tells the Trainer's closing row from a step's
_SUMMARY_KEYS = frozenset({"total_flos", "train_loss", "epoch", "num_tokens"})
# After these, waiting for the device may never end.
_STUCK = frozenset({"collective_timeout", "nccl_error", "device_assert"})


class Session:
    """Records one trainer. Each call of its `train` is an attempt of its own.

    Args:
        options: for the Recorder; what the trainer itself tells is filled in.
    """

    def __init__(self, trainer: Any, run_dir: str | Path, options: Mapping[str, Any]) -> None:
        self.trainer = trainer
        self._run_dir = run_dir
        self._options = dict(options)
        self._depth = 0
        self._checkpoint: Any = None
        self._open = False
        self._own_names: set[str] = set()  # that the trainer logs itself
        self._sources: set[str] = set()
        self._current = int(trainer.state.global_step) + 1  # the step that is being made, or was
        self.recorder = self._new_recorder()
        self._relay = Relay(self.recorder)
        self.probes = Probes(self._relay)
        self.rollouts = Rollouts(trainer, self._relay, self.probes)
        self.steps = Steps(trainer, self._relay, self.probes, self.rollouts)
        self._install()

    def _new_recorder(self) -> Recorder:
        known = {
            "framework": "trl",
            "algorithm": facts.algorithm(self.trainer),
            "model": facts.model_name(self.trainer),
        }
        config = {**facts.settings(self.trainer), **(self._options.get("config") or {})}
        self._open = True
        recorder = Recorder(self._run_dir, **{**known, **self._options, "config": config})
        if "framework" not in self._options:
            recorder.describe(framework=facts.framework(self.trainer))
        return recorder

    def _install(self) -> None:
        self.probes.run("rollouts", self.rollouts.install)
        self.probes.run("steps", self.steps.install)
        wrap(self.trainer, "train", self._around_train)
        wrap(self.trainer, "log", self._around_log)

    def _around_train(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.run(original, args, kwargs)

    def _around_log(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What the trainer hands on to its trackers is what it tells us itself."""
        state = HUB.state
        before, state.busy = state.busy, True
        try:
            return original(*args, **kwargs)
        finally:
            state.busy = before

    def _tell_source(self, source: str) -> None:
        if source not in self._sources:
            self._sources.add(source)
            place.tell("sources", f"{source}\t{self.recorder.run_dir}")

    def _host(self, source: str, values: Mapping[str, Any]) -> None:
        """What training code tells a tracker by itself belongs to the step that is being made."""
        self._tell_source(source)
        step = self._current
        own = {name: value for name, value in values.items() if name not in self._own_names}
        if own:
            self.recorder.step(step, **own)
            if self.recorder.world_size > 1:
                self.recorder.rank_step(step, **own)

    # --- around training -----------------------------------------------------------------------

    def run(self, train: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call `train` and record how it ends. Nested calls are one."""
        if self._depth:
            return train(*args, **kwargs)
        self._tell_source("the Trainer")
        HUB.be_hosted(self._host)
        self.probes.run("reopen", self._reopen)
        self._checkpoint = kwargs.get("resume_from_checkpoint", args[0] if args else None)
        self._depth += 1
        try:
            result = train(*args, **kwargs)
        except BaseException as error:
            self.probes.run("end", self._failed, error)
            raise
        finally:
            self._depth -= 1
        self.probes.run("end", self._completed)
        return result

    def _reopen(self) -> None:
        """A second `train` of the same trainer is a new attempt."""
        if not self._open:
            self.recorder.close()
            self.recorder = self._relay.target = self._new_recorder()

    def _completed(self) -> None:
        """Training is over; what is evaluated afterwards is still recorded, until exit."""
        self._open = False
        self.steps.forget()
        self.recorder.finish()

    def _failed(self, error: BaseException) -> None:
        step = int(self.trainer.state.global_step)
        if isinstance(error, KeyboardInterrupt) or (
            isinstance(error, SystemExit) and not error.code
        ):
            self._halted(error, step)
            return
        text = f"{type(error).__name__}: {error}"
        known = schema.classify_failure(text.splitlines())
        if known is None or known[0].kind not in _STUCK:
            self.probes.run("weight", self.steps.weight.check, step)
        self.recorder.crash(error, step=step, in_step=step + 1)
        self._close("crashed")

    def _halted(self, error: BaseException, step: int) -> None:
        if self.recorder.status != "halted":  # its signal handler was first
            self.recorder.event("halted", type(error).__name__, step=step)
        self._close("halted")

    def _close(self, status: str) -> None:
        self._open = False
        self.steps.forget()
        self.recorder.close(status)

    # --- what the Trainer tells, through the callback -------------------------------------------

    def on_train_begin(self, state: Any) -> None:
        """Training begins, from the start or from a checkpoint."""
        self.steps.start()
        if state.max_steps > 0:
            self.recorder.describe(config={"max_steps": int(state.max_steps)})
        if state.global_step > 0 and state.is_world_process_zero:
            path = self._resumed_from(int(state.global_step))
            self.recorder.event(
                "resumed",
                f"from step {state.global_step}",
                step=int(state.global_step),
                path=path,
            )

    def _resumed_from(self, step: int) -> str:
        if isinstance(self._checkpoint, str | Path):
            return str(Path(self._checkpoint).absolute())
        return str(checkpoints.directory(self.trainer.args.output_dir, step))

    def on_step_begin(self, state: Any) -> None:
        """A step's first micro-batch is next."""
        self._current = int(state.global_step) + 1
        self.steps.begin(int(state.global_step))

    def on_pre_optimizer_step(self) -> None:
        """The gradients are complete, and clipped."""
        self.steps.before_update()

    def on_optimizer_step(self, optimizer: Any, scheduler: Any) -> None:
        """The weights are updated."""
        self.steps.after_update(optimizer, scheduler)

    def on_step_end(self, *, logged: bool) -> None:
        """The step is over."""
        self.steps.end(logged=logged)

    def on_log(self, state: Any, logs: dict[str, Any]) -> None:
        """A row of scalars is logged."""
        step = int(state.global_step)
        if _SUMMARY in logs:
            logs = self._summary(step, logs)
        if logs:
            logs.pop("step", None)
            self._own_names.update(logs)
            self.recorder.step(step, **self.steps.logged(step, logs))

    def _summary(self, step: int, logs: dict[str, Any]) -> dict[str, Any]:
        """Record the closing row; what it holds of the last steps' metrics is returned."""
        closing = {key: logs[key] for key in logs if key.startswith("train_")}
        closing |= {key: logs[key] for key in _SUMMARY_KEYS if key in logs}
        if self.recorder.rank_id == 0:
            self.recorder.event("summary", "training is over", step=step, **closing)
        return {key: value for key, value in logs.items() if key not in closing}

    def on_save(self, state: Any) -> None:
        """A checkpoint was written; whether its weights are sound is told before it."""
        step = int(state.global_step)
        self.probes.run("weight", self.steps.weight.check, step)
        if not state.is_world_process_zero:
            return
        path = checkpoints.directory(self.trainer.args.output_dir, step)
        if path.is_dir():
            skips = bool(getattr(self.trainer.args, "ignore_data_skip", False))
            has, lacks = checkpoints.parts(path, skips_data=skips)
            self.recorder.checkpoint(step, path, has=has, lacks=lacks)

    def on_train_end(self, state: Any) -> None:
        """The training loop is over; the last step's weights are looked at."""
        self.probes.run("weight", self.steps.weight.check, int(state.global_step))
