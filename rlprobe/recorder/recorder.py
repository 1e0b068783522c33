"""The recorder: what training code calls. Appends to a buffer and returns."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from rlprobe import naming
from rlprobe.errors import UsageError
from rlprobe.recorder import launch as launching
from rlprobe.recorder import lifecycle
from rlprobe.recorder.buffer import Buffer, Row
from rlprobe.recorder.failure import explained, last_line
from rlprobe.recorder.rollouts import ARGUMENTS, SamplePolicy
from rlprobe.recorder.sink import ShardSink
from rlprobe.recorder.snapshot import IMMUTABLE, snapshot, to_list
from rlprobe.recorder.writer import Writer
from rlprobe.store import layout, manifest

_now = time.time
_all_immutable = IMMUTABLE.issuperset
CRITICAL = frozenset({"nan_detected", "crash", "halted", "run_ended"})


class Recorder:
    """Records one process of one training run into a run directory.

    Every process of a distributed job may construct one with the same directory: rank and world
    size come from the launcher's environment, global scalars are written by rank 0 only. A
    directory that holds an earlier launch gets a new attempt; nothing of the earlier one is lost.

    After construction nothing raises into training: failures and drops are counted, warned of
    once, and recorded.

        with Recorder("runs/my-run", algorithm="GRPO") as recorder:
            for step in range(steps):
                ...
                recorder.step(step, loss=loss, grad_norm=norm, rewards=rewards)

    Args:
        run_dir: where to record; created if need be.
        framework: whose metric names `step` gets (`trl`, `verl`, …); None for plain names.
        config: settings worth knowing afterwards (`beta`, `max_completion_length`, …).
        samples: how many rollouts are kept, and how much of their text.
        flush_seconds: what a kill can cost at most.
        rank, world_size, launch: only where the environment does not tell.
        signals: chain onto SIGTERM and SIGINT, so that they find everything written.

    Raises:
        InputError: the directory cannot be created or written.
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
        rank: int | None = None,
        world_size: int | None = None,
        launch: str | None = None,
        signals: bool = True,
    ) -> None:
        if framework is not None and framework not in naming.every():
            known = ", ".join(naming.every())
            raise UsageError(f"Couldn't record for framework '{framework}': known are {known}")
        if not flush_seconds > 0:
            raise UsageError(f"Couldn't flush every '{flush_seconds}' seconds: must be above 0")
        place = launching.place()
        self.run_dir = Path(run_dir).absolute()
        self.rank_id = place.rank if rank is None else rank
        self.world_size = place.world_size if world_size is None else world_size
        manifest.prepare(self.run_dir)
        self._writer_id = f"{place.role}.{layout.new_writer_id()}"
        self._started = time.time()
        self.attempt = manifest.claim_attempt(
            self.run_dir, launch or place.launch, self.rank_id, self._writer_id, self.world_size
        )
        self._sink = ShardSink(self.run_dir, self.attempt, self.rank_id, self._writer_id)
        self._buffer = Buffer()
        self._writer = Writer(
            self._buffer,
            self._sink,
            rank=self.rank_id,
            attempt=self.attempt,
            framework=framework,
            policy=samples or SamplePolicy(),
            flush_seconds=flush_seconds,
        )
        self._push = self._buffer.push
        self.busy_here = self._writer.flushing_here
        self.before_fork = self._writer.before_fork
        self.after_fork_in_parent = self._writer.after_fork_in_parent
        self.status: str | None = None  # how it ended, as soon as that is known
        self._closed = False
        self._owner = os.getpid()
        self._records_steps = self.rank_id <= 0
        self.describe(framework=framework, algorithm=algorithm, model=model, config=config)
        if self.rank_id >= 0:  # the launcher tells its own start, with the command
            self.event("run_started", pid=self._owner, world_size=self.world_size)
            launching.announce(self.run_dir)
        lifecycle.watch(self, signals=signals)
        self._writer.start()

    # --- what training calls ---------------------------------------------------------------

    def step(self, step: int | None = None, /, **metrics: Any) -> None:
        """Record global scalars of an optimizer step. Rank 0 writes them, others return at once.

        Values may be Python, NumPy or torch scalars (a device tensor is not waited for), or arrays
        where a distribution is natural: `rewards`, `advantages`, `completion_lengths` become mean,
        std, min, max and p95; a matrix of rewards (groups x rollouts) also gives the share of
        groups without variance. None means not logged; anything else is left out and counted.
        """
        if self._records_steps:
            try:
                if step is None:
                    step = metrics.pop("step")
                if not _all_immutable(map(type, metrics.values())):
                    metrics = snapshot(metrics)
                self._push(("steps", step, _now(), metrics))
            except Exception as error:
                self._writer.fail("record steps", error)

    def rank_step(self, step: int | None = None, /, **metrics: Any) -> None:
        """Record this rank's own scalars of an optimizer step; every rank writes its own.

        `rank` is its earlier name and does the same; which rank this is, is `rank_id`.
        """
        try:
            if step is None:
                step = metrics.pop("step")
            if not _all_immutable(map(type, metrics.values())):
                metrics = snapshot(metrics)
            self._push(("ranks", step, _now(), metrics))
        except Exception as error:
            self._writer.fail("record ranks", error)

    rank = rank_step

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
        `group_ids`, from `group_size` (neighbours), or from equal prompts. Texts are strings or
        conversations (lists of messages).
        """
        try:
            given = locals()
            content = {name: to_list(given[name]) for name in ARGUMENTS}
            components = reward_components or {}
            content["reward_components"] = {k: to_list(v) for k, v in components.items()}
            content["group_size"] = group_size
            size = sum(len(text) if isinstance(text, str) else 1000 for text in completions)
            self._buffer.push_text(("samples", step, _now(), content), size)
            self._writer.start()  # it runs already, but for a forked child's first record
        except Exception as error:
            self._writer.fail("samples", error)

    def event(
        self, kind: str, message: str = "", /, *, step: int | None = None, **data: Any
    ) -> None:
        """Record that something happened. Critical kinds are on disk when this returns.

        Critical are `nan_detected`, `crash`, `halted` and `run_ended`, with everything recorded
        before them.
        """
        try:
            content = {"kind": kind, "message": message, "data": data}
            if kind in CRITICAL:
                self._writer.flush()  # a full buffer must not cost the event its place
            self._push(("events", step, _now(), content))
            if kind in CRITICAL:
                trigger = kind if kind in {"nan_detected", "crash"} else ""
                self._flush(trigger)
        except Exception as error:
            self._writer.fail("events", error)

    def nan_detected(
        self,
        step: int,
        source: str = "gradient",
        *,
        nan_count: int | None = None,
        inf_count: int | None = None,
        names: Sequence[str] = (),
        message: str = "",
    ) -> None:
        """Record a NaN or Inf; on disk when this returns, with the ring of rollouts.

        `source` is where it was seen: `gradient`, `weight`, `loss`, `reward`, `logits`, …; `names`
        are the parameters concerned, of which the first 50 are kept.
        """
        counts = {"nan_count": nan_count, "inf_count": inf_count}
        self.event(
            "nan_detected",
            message or f"{source} is not finite",
            step=step,
            source=source,
            names=list(names)[:50],
            **counts,
        )

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
        has = [*has, *(name for name, there in (state or {}).items() if there)]
        lacks = [*lacks, *(name for name, there in (state or {}).items() if not there)]
        name = os.fspath(path)
        self.event("checkpoint", name, step=step, path=name, has=has, lacks=lacks)

    def crash(self, error: BaseException | str, *, step: int | None = None, **data: Any) -> None:
        """Record that training died, and what its last words mean; on disk when this returns."""
        try:
            self.status = "crashed"
            self.event(
                "crash",
                last_line(error),
                step=self.last_step if step is None else step,
                **{**explained(error), **data},
            )
        except Exception as failure:
            self._writer.fail("events", failure)

    def describe(self, **changes: Any) -> None:
        """Add to the manifest: `framework`, `algorithm`, `model`, `config`. Rank 0 writes it."""
        if self.rank_id > 0:
            return
        try:
            if self.rank_id == 0:
                changes |= {"world_size": self.world_size, "environment": manifest.environment()}
            manifest.update(self.run_dir, changes)
        except Exception as error:
            self._writer.fail("describe", error)

    def flush(self) -> None:
        """Make everything recorded so far durable."""
        self._flush()

    def _flush(self, trigger: str = "") -> None:
        self._writer.flush(trigger)
        lifecycle.deliver_postponed()

    @property
    def last_step(self) -> int | None:
        """The highest step recorded so far."""
        steps = [row[1] for row in list(self._buffer.queue) if row[0] in {"steps", "ranks"}]
        known = [step for step in (*steps, self._writer.last_step) if isinstance(step, int)]
        return max(known, default=None)

    # --- how it ends ------------------------------------------------------------------------

    def finish(self) -> None:
        """Training is over, in order; what follows (an evaluation) is still recorded.

        The run counts as completed from now on, whatever the process does afterwards.
        """
        if self._closed or self.status is not None:
            return
        self.status = "completed"
        self.event("run_ended", step=self.last_step, status=self.status)
        self._finish_process(self.status)

    def close(self, status: str = "completed") -> None:
        """Write everything and record the end. Further records are ignored.

        Args:
            status: `completed`, `crashed`, `halted` or `killed`; a crash that was recorded stays.
        """
        if self._closed:
            return
        self._closed = True
        lifecycle.unwatch(self)
        try:
            self._end(self.status or status)
        except Exception as error:
            self._writer.fail("close", error)

    def _end(self, status: str) -> None:
        if self.rank_id < 0:
            self._follow_restarts()
        self._writer.flush()
        totals = self._writer.totals()
        if totals:
            lost = ", ".join(f"{count} {kind}" for kind, count in totals.items())
            self.event("recorder_dropped", lost, **totals)
        if status == "completed" and self.status is None:
            self.event("run_ended", step=self.last_step, status=status)
        self._records_steps = False
        self._writer.stop()
        self._finish_process(status)

    def _finish_process(self, status: str) -> None:
        manifest.write_process(
            self.run_dir,
            self.attempt,
            self.rank_id,
            self._writer_id,
            started=self._started,
            status=status,
            health=self._writer.totals(),
        )
        if self.rank_id <= 0:
            manifest.update(self.run_dir, {})

    def _follow_restarts(self) -> None:
        """The launcher's last word belongs to the newest attempt of its job."""
        latest = manifest.latest_attempt(self.run_dir)
        if latest != self.attempt:
            self._writer.flush()
            self._finish_process("completed")
            self.attempt = self._writer.attempt = latest
            self._sink.move(latest)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            self.event("halted", "interrupted from the keyboard", step=self.last_step, signal=2)
            self.status = "halted"
        elif error is not None and not (isinstance(error, SystemExit) and not error.code):
            self.crash(error)
        self.close()

    # --- called by lifecycle ------------------------------------------------------------------

    def on_exit(self) -> None:
        """The interpreter ends."""
        if os.getpid() == self._owner:
            self.close()
        else:
            self.flush()  # a forked child: its rows are its own, the run's end is not

    def on_exception(self, error: BaseException) -> None:
        """Nobody caught an exception."""
        if os.getpid() != self._owner:
            return
        if isinstance(error, KeyboardInterrupt):
            self.status = self.status or "halted"
        elif self.status in {None, "completed"}:
            self.crash(error)

    def on_signal(self, number: int) -> None:
        """SIGTERM or SIGINT: write everything; what follows is the earlier handler's business."""
        if os.getpid() != self._owner:
            return
        name = signal.Signals(number).name
        self.event("halted", f"got {name}", step=self.last_step, signal=number)
        self.status = self.status or "halted"
        self._finish_process(self.status)  # the earlier handler may be death itself

    def after_fork_in_child(self) -> None:
        """Start anew under a name of its own."""
        self._writer.after_fork_in_child()
        if not self._closed:
            self._push = self._push_after_fork

    def _push_after_fork(self, row: Row) -> None:
        """The child's first row starts the child's thread; children that record none have none."""
        self._push = self._buffer.push
        self._writer.start()
        self._push(row)
