"""The writer: drains the buffer, encodes, hands over to the sink. The only place that may block."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable
from typing import Any

from rlprobe import schema
from rlprobe.recorder.buffer import Buffer, Row
from rlprobe.recorder.rollouts import RolloutSelector, SamplePolicy
from rlprobe.recorder.sink import Sink
from rlprobe.values import Event, Rollout

_RETRIED_ROWS = 200_000  # rows kept for another try while the disk cannot be written


class Writer:
    """Owns the thread, the encoders and the sink.

    `flush` may be called from any thread: one lock keeps flushes apart. A signal handler that
    interrupts a flush on its own thread must not flush again; `flushing_here` tells.
    """

    def __init__(
        self,
        buffer: Buffer,
        sink: Sink,
        *,
        rank: int,
        attempt: int,
        framework: str | None,
        policy: SamplePolicy,
        flush_seconds: float,
    ) -> None:
        self.buffer = buffer
        self.sink = sink
        self.rank = rank
        self.attempt = attempt
        self.health: dict[str, int] = {}
        self.last_step: int | None = None
        self._framework = framework
        self._policy = policy
        self._flush_seconds = flush_seconds
        self._waiting: dict[str, list[Any]] = {name: [] for name in schema.TABLES}
        self._warned: set[str] = set()
        self._make_encoders()
        self._reset_thread()

    def _make_encoders(self) -> None:
        # Imported now, whole: nothing can be imported any more while an interpreter shuts down.
        import rlprobe.store.shards  # noqa: F401
        from rlprobe.recorder.encode import MetricEncoder

        self._metrics = {
            name: MetricEncoder(name, self._framework, self._reject) for name in ("steps", "ranks")
        }
        self._rollouts = RolloutSelector(self._policy)

    def _reset_thread(self) -> None:
        self._lock = threading.RLock()
        self._owner: int | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is None and not self._stopping:
            self._thread = threading.Thread(target=self._run, name="rlprobe-writer", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Write everything and end the thread."""
        self._stopping = True
        self.buffer.wake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=30)
        self.flush()

    def flushing_here(self) -> bool:
        """Whether this very thread is inside a flush (a signal handler may ask)."""
        return self._owner == threading.get_ident()

    def _run(self) -> None:
        buffer = self.buffer
        while True:
            buffer.wake.wait(self._flush_seconds)
            buffer.wake.clear()
            if self._stopping:
                return
            self.flush()
            self._tidy()

    def _tidy(self) -> None:
        try:
            with self._lock:
                self.sink.tidy()
        except Exception as error:  # merging is housekeeping: the shards stay as they are
            self.fail("merge", error)

    def flush(self, trigger: str = "") -> bool:
        """Make everything recorded so far durable; True when it is.

        Args:
            trigger: kind of the critical event that asks; the ring of rollouts is written too.
        """
        with self._lock:
            self._owner = threading.get_ident()
            try:
                self._take(self.buffer.drain())
                if trigger:
                    self._take_rollouts(self._rollouts.ring(trigger))
                written = [self._write(table) for table in schema.TABLES]
            except Exception as error:
                self.fail("flush", error)
                return False
            finally:
                self._owner = None
        return all(written)

    def _take(self, rows: Iterable[Row]) -> None:
        for table, step, moment, content in rows:
            try:
                self._take_row(table, step, moment, content)
            except Exception as error:
                self.fail(table, error)

    def _take_row(self, table: str, step: int | None, moment: float, content: Any) -> None:
        if table == "events":
            self._take_event(step, moment, content)
            return
        number = int(step)  # type: ignore[arg-type]
        self.last_step = number if self.last_step is None else max(number, self.last_step)
        if table == "samples":
            self._take_rollouts(self._rollouts.select(number, self.attempt, self.rank, content))
            return
        self._waiting[table].append((number, moment, content))

    def _take_event(self, step: int | None, moment: float, content: dict[str, Any]) -> None:
        from rlprobe.store import codec

        event = Event(
            kind=str(content["kind"]),
            step=None if step is None else int(step),
            time=moment,
            attempt=self.attempt,
            rank=self.rank,
            message=str(content["message"]),
            data=content["data"],
        )
        self._waiting["events"].append(codec.event_row(event))

    def _take_rollouts(self, rollouts: Iterable[Rollout]) -> None:
        from rlprobe.store import codec

        self._waiting["samples"] += [codec.rollout_row(rollout) for rollout in rollouts]

    def _write(self, table: str) -> bool:
        rows = self._waiting[table]
        if not rows:
            return True
        try:
            self.sink.write(table, self._encode(table, rows))
        except Exception as error:
            self.fail("write", error)
            lost = len(rows) - _RETRIED_ROWS
            if lost > 0:
                del rows[:lost]
                self.buffer.drop(table, lost)
            return False
        self._waiting[table] = []
        return True

    def _encode(self, table: str, rows: list[Any]) -> Any:
        from rlprobe.store import codec

        if table in self._metrics:
            constants = {"attempt": self.attempt}
            if table == "ranks":
                constants["rank"] = self.rank
            return self._metrics[table].encode(rows, constants)
        return codec.rows(table, rows)

    def _reject(self, name: str) -> None:
        self.health["values_that_are_no_numbers"] = (
            self.health.get("values_that_are_no_numbers", 0) + 1
        )
        self._warn(f"metric:{name}", f"rlprobe: metric {name[:80]!r} is no number; left out")

    def fail(self, what: str, error: BaseException) -> None:
        """Count a failure of the recorder's own, and warn once per kind."""
        key = f"{what}_failures"
        self.health[key] = self.health.get(key, 0) + 1
        self._warn(key, f"rlprobe: could not {what}: {type(error).__name__}: {error}")

    def _warn(self, key: str, message: str) -> None:
        if key in self._warned or len(self._warned) > 100:
            return
        self._warned.add(key)
        try:
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        except RuntimeWarning:  # warnings are errors here; training must not see it
            self.health["silenced_warnings"] = self.health.get("silenced_warnings", 0) + 1

    def totals(self) -> dict[str, int]:
        """What was dropped and what failed, by kind."""
        return {**self.health, **self.buffer.dropped}

    def before_fork(self) -> None:
        """Let no flush be half done in the child."""
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Forget the parent's rows and thread; the next record starts a thread of the child's."""
        self._reset_thread()
        self.buffer.clear()
        self._waiting = {name: [] for name in schema.TABLES}
        self.health = {}
        self._rollouts = RolloutSelector(self._policy)
        self.sink.after_fork()
