"""The recorder: what training code calls. Appends to a buffer and returns."""

from __future__ import annotations

import itertools
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from rlprobe import naming
from rlprobe.errors import UsageError
from rlprobe.recorder import launch as launching
from rlprobe.recorder import lifecycle
from rlprobe.recorder.batches import AUTO
from rlprobe.recorder.buffer import BACKLOG_BYTES, Row
from rlprobe.recorder.harmless import harmless, merged
from rlprobe.recorder.health import Health
from rlprobe.recorder.own_files import describable
from rlprobe.recorder.process import RecordedProcess
from rlprobe.recorder.rollout_arguments import ARGUMENTS
from rlprobe.recorder.rollouts import SamplePolicy
from rlprobe.recorder.snapshot import IMMUTABLE, safely_frozen, size_of, snapshot, to_list
from rlprobe.store.processes import WORKER_RANK, launches
from rlprobe.store.text import text_of

_now = time.monotonic
_all_immutable = IMMUTABLE.issuperset
_MOST_NAMES = 50


class Recorder:
    """Records one process of one training run into a run directory.

    Every process of a distributed job may construct one with the same directory: rank and world
    size come from the launcher's environment, global scalars are written by rank 0 only. A
    directory that holds an earlier launch gets a new attempt; nothing of the earlier one is lost.
    While another run is being recorded there, this one is recorded beside it (`runs/my-run-2`),
    which is warned of; `run_dir` tells.

    After construction nothing raises into training and nothing waits for a disk that hangs longer
    than `flush_seconds`, one second at least: failures and drops are counted, warned of once, and
    recorded. A recorder that goes out of use is written as one that was closed; how the run ended
    is then what becomes of the process.

        with Recorder("runs/my-run", algorithm="GRPO") as recorder:
            for step in range(steps):
                ...
                recorder.step(step, loss=loss, grad_norm=norm, rewards=rewards)

    Args:
        run_dir: where to record; created if need be, and again if it is deleted meanwhile.
        framework: whose metric names `step` gets (`trl`, `verl`, …); None for plain names, `auto`
            for those of the framework that the names give away.
        config: settings worth knowing afterwards (`beta`, `max_completion_length`, …).
        samples: how many rollouts are kept, and how much of their text.
        flush_seconds: what a kill can cost at most, and what a hanging disk can cost a call.
        backlog_bytes: memory, about, for what cannot be written yet. Beyond it the oldest rollouts
            are dropped first, then the oldest rows, events last.
        rank, world_size, launch: only where the environment does not tell.
        role: what this process does if it is no trainer (`rollout`, `reward`, …): what it reports
            goes into the table `workers`, and it is no rank.
        signals: chain onto SIGTERM, SIGINT and SIGHUP, so that they find everything written.

    Raises:
        InputError: the directory cannot be created or written. A disk that hangs holds up the
            construction, and only that.
        UsageError: an argument makes no sense.
    """

    def __init__(  # noqa: PLR0913 - all but the directory are optional and named
        self,
        run_dir: str | os.PathLike[str],
        *,
        framework: str | None = None,
        algorithm: str | None = None,
        model: str | None = None,
        config: Mapping[str, Any] | None = None,
        samples: SamplePolicy | None = None,
        flush_seconds: float = 2.0,
        backlog_bytes: int = BACKLOG_BYTES,
        rank: int | None = None,
        world_size: int | None = None,
        launch: str | None = None,
        role: str | None = None,
        signals: bool = True,
    ) -> None:
        if framework not in {None, AUTO, *naming.every()}:
            known = ", ".join(naming.every())
            raise UsageError(f"Couldn't record for framework '{framework}': known are {known}")
        if not flush_seconds > 0:
            raise UsageError(f"Couldn't flush every '{flush_seconds}' seconds: must be above 0")
        if not backlog_bytes > 0:
            raise UsageError(f"Couldn't hold back '{backlog_bytes}' bytes: must be above 0")
        place = launching.place()
        self.rank_id = place.rank if rank is None else rank
        self._steps_table, self._ranks_table = "steps", "ranks"
        if role not in {None, launching.TRAINER}:
            self.rank_id = WORKER_RANK
            self._steps_table = self._ranks_table = "workers"
        self.world_size = place.world_size if world_size is None else world_size
        self._process = RecordedProcess(
            Path(run_dir).absolute(),
            rank=self.rank_id,
            world_size=self.world_size,
            launch=launch or launching.name_of(self.world_size, alone=place.launch),
            role=role or place.role,
            framework=framework,
            policy=samples or SamplePolicy(),
            flush_seconds=flush_seconds,
            backlog_bytes=int(backlog_bytes),
        )
        self.run_dir = self._process.run_dir
        self._writer = self._process.writer
        self._buffer = self._process.buffer
        self._sink = self._process.files.sink
        self._push = self._buffer.push
        self._records_steps = self.rank_id <= 0
        title = None if framework == AUTO else framework
        self._begin(
            signals=signals, framework=title, algorithm=algorithm, model=model, config=config
        )

    def _begin(self, *, signals: bool, **described: Any) -> None:
        self._process.files.describe(describable(described))
        if not launches(self.rank_id):  # the launcher tells its own start, with the command
            self.event("run_started", pid=os.getpid(), world_size=self.world_size)
            launching.announce(self.run_dir)
        lifecycle.watch(self._process, signals=signals)
        weakref.finalize(self, self._process.abandon).atexit = False
        self._process.begin()

    @property
    def attempt(self) -> int:
        """Number of this launch into the directory."""
        return self._process.files.attempt

    @property
    def health(self) -> Health:
        """What was lost and what failed."""
        return self._process.health

    @property
    def status(self) -> str | None:
        """How it ended, as soon as that is known."""
        return self._process.status

    # --- what training calls ---------------------------------------------------------------

    def step(
        self, step: int | Mapping[str, Any] | None = None, /, *given: Any, **metrics: Any
    ) -> None:
        """Record global scalars of an optimizer step. Rank 0 writes them, others return at once.

        A mapping of metrics does as well as keywords, also with its `step` in it.

        Values may be Python, NumPy or torch scalars (a device tensor is not waited for), or arrays
        where a distribution is natural: `rewards`, `advantages`, `completion_lengths` become mean,
        std, min, max and p95; a matrix of rewards (groups x rollouts) also gives the share of
        groups without variance. None means not logged; anything else is left out and counted.
        """
        if self._records_steps:
            try:
                if given:
                    metrics = merged(self.health, "steps", given, metrics)
                if step is None:
                    step = metrics.pop("step")
                if type(step) is int and _all_immutable(map(type, metrics.values())):
                    self._push((self._steps_table, step, _now(), metrics))
                else:
                    self._push_copy(self._steps_table, step, metrics)
            except Exception as error:
                self._push_odd(self._steps_table, step, metrics, error)
        elif self._process.is_closed:
            self._process.late(self._steps_table)

    def rank_step(
        self, step: int | Mapping[str, Any] | None = None, /, *given: Any, **metrics: Any
    ) -> None:
        """Record this rank's own scalars of an optimizer step; every rank writes its own.

        `rank` is its earlier name and does the same; which rank this is, is `rank_id`.
        """
        try:
            if given:
                metrics = merged(self.health, "ranks", given, metrics)
            if step is None:
                step = metrics.pop("step")
            if type(step) is int and _all_immutable(map(type, metrics.values())):
                self._push((self._ranks_table, step, _now(), metrics))
            else:
                self._push_copy(self._ranks_table, step, metrics)
        except Exception as error:
            self._push_odd(self._ranks_table, step, metrics, error)

    def _push_copy(self, table: str, step: Any, metrics: dict[str, Any]) -> None:
        """Push a row of which something could change, or be large."""
        if self._process.is_closed:
            self._process.late(table)
            return
        if isinstance(step, Mapping):
            metrics = merged(self.health, table, (step,), metrics)
            step = metrics.pop("step", None)
        copy, size = snapshot(metrics)
        row = (table, safely_frozen(step), _now(), copy)
        self._buffer.push_sized(self._buffer.rows, row, size)

    def _push_odd(self, table: str, step: Any, metrics: dict[str, Any], error: Exception) -> None:
        """Push a row that could not even be looked at, without what is odd about it."""
        try:
            self._push_copy(table, step, metrics)
        except Exception:
            self.health.count(f"dropped_{table}_rows")
            self.health.fail(f"record {table}", error)

    rank = rank_step

    @harmless("record samples", None)
    def samples(  # noqa: PLR0913 - one argument per column
        self,
        step: int,
        *,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        rewards: Any = None,
        reward_components: Mapping[str, Any] | None = None,
        advantages: Any = None,
        completion_lengths: Any = None,
        truncated: Any = None,
        group_size: int | None = None,
        group_ids: Sequence[Any] | None = None,
        prompt_ids: Sequence[Any] | None = None,
        logprob_means: Any = None,
        kls: Any = None,
    ) -> None:
        """Record rollouts of a step, one entry per completion.

        `prompts` (and group and prompt ids) may have one entry per group instead. Groups come from
        `group_ids`, from `group_size` (neighbours), or from equal prompts; a group is whole in one
        call, and what two calls of a step name alike are two groups. Texts are strings or
        conversations (lists of messages).
        """
        given = locals()
        content = {name: self._listed(name, given[name]) for name in ARGUMENTS}
        if self._process.is_closed:
            self._process.late("samples", len(content["completions"]))
            return
        components = dict(reward_components or {})
        content["reward_components"] = {
            name: self._listed("reward_components", values) for name, values in components.items()
        }
        content["group_size"] = group_size
        row: Row = ("samples", safely_frozen(step), _now(), content)
        self._buffer.push_sized(self._buffer.rollouts, row, 1000 + size_of(content))

    def _listed(self, name: str, values: Any) -> Any:
        try:
            return to_list(values)
        except Exception as error:  # one argument costs no other
            self.health.count("rollout_values_left_out")
            self.health.fail(f"record {name} of samples", error)
            return [] if name == "completions" else None

    @harmless("record events", False)  # noqa: FBT003 - not on disk
    def event(
        self, kind: str, message: str = "", /, *, step: int | None = None, **data: Any
    ) -> bool:
        """Record that something happened. Critical kinds are on disk when this returns.

        Critical are `nan_detected`, `crash`, `halted` and `run_ended`, with everything recorded
        before them.

        Returns:
            Whether it is on disk. False for other kinds, which are written within `flush_seconds`,
            and for a critical one that could not be written in that time; it is tried again.
        """
        return self._process.event(kind, message, step, data)

    @harmless("record events", False)  # noqa: FBT003
    def nan_detected(
        self,
        step: int,
        source: str = "gradient",
        *,
        nan_count: int | None = None,
        inf_count: int | None = None,
        names: Sequence[str] = (),
        message: str = "",
    ) -> bool:
        """Record a NaN or Inf; on disk when this returns, with the ring of rollouts.

        `source` is where it was seen: `gradient`, `weight`, `loss`, `reward`, `logits`, …; `names`
        are the parameters concerned, of which the first 50 are kept.

        Returns:
            Whether it is on disk; see `event`.
        """
        data = {"source": source, "names": _names(names), "nan_count": nan_count}
        data["inf_count"] = inf_count
        text = message or f"{text_of(source)} is not finite"
        return self.event("nan_detected", text, step=step, **data)

    @harmless("record events", None)
    def checkpoint(
        self,
        step: int,
        path: str | os.PathLike[str],
        *,
        has: Sequence[str] = (),
        lacks: Sequence[str] = (),
        state: Mapping[str, bool] | None = None,
    ) -> None:
        """Record that a checkpoint was written, and what it holds.

        `has` and `lacks` are the parts needed to resume that it holds or lacks (`model`,
        `optimizer`, `scheduler`, `scaler`, `rng`, `data_cursor`); `state` says the same as one
        mapping from part to whether it is there.
        """
        try:
            parts = dict(state or {})
            has = [*_names(has), *(name for name, there in parts.items() if there)]
            lacks = [*_names(lacks), *(name for name, there in parts.items() if not there)]
            name = text_of(path.__fspath__() if isinstance(path, os.PathLike) else path)
        except Exception as error:
            self.health.fail("record what a checkpoint holds", error)
            name, has, lacks = text_of(path), [], []
        self.event("checkpoint", name, step=step, path=name, has=has, lacks=lacks)

    @harmless("record events", False)  # noqa: FBT003
    def crash(self, /, error: BaseException | str, *, step: int | None = None, **data: Any) -> bool:
        """Record that training died, and what its last words mean; on disk when this returns.

        Returns:
            Whether it is on disk; see `event`.
        """
        return self._process.crash(error, self.last_step if step is None else step, data)

    @harmless("describe", None)
    def describe(self, /, **changes: Any) -> None:
        """Add to the manifest: `framework`, `algorithm`, `model`, `config`. Rank 0 writes it."""
        self._process.describe(changes)

    def flush(self) -> bool:
        """Make everything recorded so far durable; whether it is."""
        return self._writer.flush()

    @property
    def last_step(self) -> int | None:
        """The highest step recorded so far."""
        return self._writer.last_step

    # --- how it ends ------------------------------------------------------------------------

    def finish(self) -> None:
        """Training is over, in order; what follows (an evaluation) is still recorded.

        The run counts as completed from now on, whatever the process does afterwards.
        """
        self._process.finish()

    def close(self, status: str = "completed") -> None:
        """Write everything and record the end. Of later records only critical events are kept.

        Args:
            status: `completed`, `crashed`, `halted` or `killed`; a crash that was recorded stays.
        """
        self._records_steps = False
        self._push = self._process.late_row
        try:
            self._process.close(status)
        except Exception as error:
            self.health.fail("close", error)
        lifecycle.unwatch(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            self.event("halted", "interrupted from the keyboard", step=self.last_step, signal=2)
            self._process.status = "halted"
        elif error is not None and not (isinstance(error, SystemExit) and not error.code):
            self.crash(error)
        self.close()


def _names(names: Any) -> list[Any]:
    """The first names of a sequence of any kind; a single name is one."""
    if isinstance(names, str):
        return [names]
    try:
        return list(itertools.islice(names, _MOST_NAMES))
    except Exception:  # no sequence, or one whose code fails
        return [] if names is None else [text_of(names)]
