"""One process's part of a recording, from its claim of an attempt to its last word.

`lifecycle` holds it until it has ended; the `Recorder` of training may go out of use before.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlprobe import numbers
from rlprobe.recorder import last_words
from rlprobe.recorder import launch as launching
from rlprobe.recorder.buffer import Buffer, Row
from rlprobe.recorder.claim import claimed
from rlprobe.recorder.disk import DiskWatch
from rlprobe.recorder.failure import explained, last_line
from rlprobe.recorder.health import Health
from rlprobe.recorder.late_calls import LateCalls
from rlprobe.recorder.own_files import OwnFiles, describable
from rlprobe.recorder.requests import Request
from rlprobe.recorder.rollouts import SamplePolicy
from rlprobe.recorder.snapshot import frozen_data, size_of
from rlprobe.recorder.writer import Writer
from rlprobe.store import manifest
from rlprobe.store.processes import ENDS, launches, leads
from rlprobe.store.text import text_of

CRITICAL = ("nan_detected", "crash", "halted", "run_ended")
_WITH_RING = ("nan_detected", "crash")
_now = time.monotonic


class RecordedProcess:
    """What a process records, and how its end is told.

    Attributes:
        status: how it ended, as soon as that is known.
        is_closed: records are ignored from now on.
        is_abandoned: nothing refers to the recorder any more; the end of training is near.

    Raises:
        InputError: the directory cannot be created or written.
    """

    def __init__(  # noqa: PLR0913 - what is known of it
        self,
        run_dir: Path,
        *,
        rank: int,
        world_size: int,
        launch: str,
        role: str,
        framework: str | None,
        policy: SamplePolicy,
        flush_seconds: float,
        backlog_bytes: int,
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.status: str | None = None
        self.is_closed = False
        self.is_abandoned = False
        self._last_request: Request | None = None
        self._closed_as = ""
        self._late: LateCalls | None = None
        self._is_told = False  # the recording knows the end, and what was lost
        self._has_spoken = False
        self._owner = os.getpid()
        self.health = Health()
        self.disk = DiskWatch()
        claim = claimed(
            run_dir,
            launch,
            lambda place: OwnFiles(
                place,
                rank=rank,
                world_size=world_size,
                launch=launch,
                role=role,
                health=self.health,
                disk=self.disk,
            ),
        )
        self.run_dir, self.files = claim.run_dir, claim.content
        if claim.why:
            self.health.warn("claim", f"rlprobe: {claim.why}")
            self.files.describe({"notes": [claim.why]})
        self.buffer = Buffer(self.health, backlog_bytes)
        self.writer = Writer(
            self.buffer,
            self.files.sink,
            self.health,
            self.disk,
            rank=rank,
            attempt=self.files.attempt,
            framework=framework,
            role=role,
            policy=policy,
            flush_seconds=flush_seconds,
            restore=self.files.restore,
            report=self._report,
            describe=self.files.describe,
            first=self.files.clear_leftovers,
        )

    def begin(self) -> None:
        """Tell what earlier attempts could not, and start to write."""
        for attempt, counts in last_words.collect(self.run_dir, self.rank):
            self.health.include(counts)
            message = f"attempt {attempt} could not tell: {numbers.counts(counts)}"
            self.push_event("recorder_dropped", message, None, {**counts, "of_attempt": attempt})
        self.writer.start()

    # --- what is recorded ----------------------------------------------------------------------

    def event(self, kind: Any, message: Any, step: Any, data: Mapping[str, Any]) -> bool:
        """Record an event; True when it is on disk, which only critical ones wait for."""
        critical = isinstance(kind, str) and str(kind) in CRITICAL
        if self.is_closed and not critical:
            self.late("events")
            return False
        dropped = self.health.dropped("events")
        self.push_event(kind, message, step, data)
        if not critical:
            return False
        durable = self._durable(kind, self.writer.request(kind if kind in _WITH_RING else ""))
        return durable and self.health.dropped("events") == dropped  # it may have been this one

    def push_event(self, kind: Any, message: Any, step: Any, data: Mapping[str, Any]) -> None:
        """Record an event, without waiting."""
        try:
            copy = frozen_data(dict(data))
            size = 1000 + size_of(copy) + size_of(message)
        except Exception:
            copy, size = {"data": text_of(data)}, 10_000
        content = {"kind": kind, "message": message, "data": copy}
        self.buffer.push_sized(self.buffer.events, ("events", step, _now(), content), size)

    def _durable(self, kind: str, request: Request) -> bool:
        durable = self.writer.wait(request)
        if not durable:
            self.health.count("events_not_on_disk_in_time")
            self.health.warn(
                "not durable",
                f"rlprobe: '{kind}' is recorded in memory and not on disk yet, in "
                f"'{self.run_dir}'; it is tried again",
            )
        return durable

    def crash(self, error: Any, step: Any, data: Mapping[str, Any]) -> bool:
        """Record that training died; True when that is on disk."""
        self.status = "crashed"
        try:
            content = {**explained(error), **data}
            message = last_line(error)
        except Exception:  # the exception's own code fails
            content, message = {"exception": type(error).__name__, **data}, text_of(error)[:500]
        return self.event("crash", message, step, content)

    def describe(self, changes: Mapping[str, Any]) -> None:
        """Add to the manifest, and wait for that."""
        if leads(self.rank):
            copy = describable(changes)
            self.writer.wait(self.writer.request(task=lambda: self.files.describe(copy)))

    # --- on the writer's thread ----------------------------------------------------------------

    def _report(self) -> None:
        """Tell the recording what was lost, now that something can be written."""
        lost = self.health.report()
        self.push_event("recorder_dropped", numbers.counts(lost), None, lost)
        if os.getpid() == self._owner and not self.is_closed:
            self.files.tell(self.status)

    # --- how it ends ---------------------------------------------------------------------------

    def finish(self) -> None:
        """Training is over, in order; what follows is still recorded."""
        if self.is_closed or self.status is not None:
            return
        self.status = "completed"
        self.push_event("run_ended", "", self.writer.last_step, {"status": "completed"})
        request = self.writer.request(task=lambda: self._written_and_told("completed"))
        self._durable("run_ended", request)

    def _written_and_told(self, status: str) -> bool:
        written = self.writer.write_out()
        return self.files.tell_end(status) and written

    def close(self, status: str) -> None:
        """Write everything and record the end; waits for the disk as long as is reasonable."""
        if not self.is_closed:
            self.begin_close(status)()

    def late(self, table: str, rows: int = 1) -> None:
        """Count what is recorded after the end."""
        if self._late is None:
            self._late = LateCalls(self.health, self._tell_late)
        self._late.add(table, rows)

    def late_row(self, row: Row) -> None:
        """A row after the end."""
        self.late(row[0])

    def _tell_late(self) -> Request | None:
        if os.getpid() != self._owner:
            return None
        return self.writer.request(task=lambda: self.files.tell(self._closed_as))

    def begin_close(self, status: str) -> Callable[[], object]:
        """Ask for the end to be written; what is returned waits for it."""
        if os.getpid() != self._owner:
            return self._flush_in_child()
        if status not in ENDS:
            self.health.fail("close", ValueError(f"'{text_of(status)[:40]}' is no status"))
            status = "halted"
        self.is_closed = True
        self._closed_as = self.status or status
        self.writer.stop_when_idle()
        request = self.writer.request(task=lambda: self._end(self.status or status))
        self._last_request = request
        return self._wait_for_the_end

    def _wait_for_the_end(self) -> None:
        if self._last_request is not None and not self.writer.wait(self._last_request):
            self._say_what_is_lost()

    def _end(self, status: str) -> bool:
        if launches(self.rank):
            self._follow_restarts()
        if self.health.unreported():
            lost = self.health.report()
            self.push_event("recorder_dropped", numbers.counts(lost), None, lost)
        if status == "completed" and self.status is None:
            message = "the recorder went out of use without close()" if self.is_abandoned else ""
            self.push_event("run_ended", message, self.writer.last_step, {"status": status})
        written = self.writer.write_out()
        for table, rows in self.writer.backlog.counts().items():  # nobody tries again
            self.health.count(f"dropped_{table}_rows", rows)
        self._is_told = self.files.tell_end(status)
        if not (written and self._is_told):
            self._say_what_is_lost()
        return written and self._is_told

    def _follow_restarts(self) -> None:
        """The launcher's last word belongs to the newest attempt of its job."""
        latest = manifest.latest_attempt(self.run_dir)
        if latest != self.files.attempt:
            self.files.tell_end("completed")
            self.files.move(latest)
            self.writer.move(latest)

    def _say_what_is_lost(self) -> None:
        """The end could not be written: say so where it is seen, and leave it for the next."""
        if self._has_spoken:
            return
        self._has_spoken = True
        lost = self.health.totals()
        if not self._is_told:
            for table, rows in self.writer.unwritten().items():
                lost.setdefault(f"dropped_{table}_rows", rows)
        self.health.warn(
            "end",
            f"rlprobe: not all of the recording in '{self.run_dir}' could be written: "
            f"{numbers.counts(lost) or 'the disk does not answer'}",
        )
        if not self._is_told:
            last_words.leave(self.run_dir, self.files.attempt, self.rank, lost)

    # --- called by lifecycle -------------------------------------------------------------------

    def busy_here(self) -> bool:
        """Whether this thread must not be waited for now."""
        return self.writer.forking_here()

    def before_fork(self) -> None:
        """Let nothing be half done in the child."""
        self.writer.before_fork()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self.writer.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        """Start anew under a name of its own."""
        self.writer.after_fork_in_child()

    def abandon(self) -> None:
        """Nothing refers to the recorder any more: write what is there, and rest the thread."""
        if not self.is_closed and os.getpid() == self._owner:
            self.is_abandoned = True
            self.writer.stop_when_idle()

    def on_exit(self) -> Callable[[], object]:
        """The interpreter ends; what is returned waits for the end to be written."""
        if self.is_closed and os.getpid() == self._owner:
            return self._wait_for_the_end  # whoever closed may have been interrupted
        return self.begin_close("completed")

    def _flush_in_child(self) -> Callable[[], object]:
        """A forked child's rows are its own, the run's end is not."""
        if self.writer.is_idle:
            return _nothing
        request = self.writer.request()
        return lambda: self.writer.wait(request)

    def on_exception(self, error: BaseException) -> Callable[[], object]:
        """Nobody caught an exception."""
        if os.getpid() == self._owner:
            if isinstance(error, KeyboardInterrupt):
                self.status = self.status or "halted"
            elif self.status in {None, "completed"}:
                self.crash(error, self.writer.last_step, {})
        return _nothing

    def on_signal(self, number: int) -> Callable[[], object]:
        """A signal: write everything; what follows is the earlier handler's business."""
        if os.getpid() != self._owner:
            return _nothing
        if self.is_closed:
            return self._wait_for_the_end
        in_order = number == signal.SIGTERM and launching.ends_by_signal()
        self.status = status = self.status or ("completed" if in_order else "halted")
        if not in_order:
            name = signal.Signals(number).name
            self.push_event("halted", f"got {name}", self.writer.last_step, {"signal": number})
        # The earlier handler may be death itself: the end is told now.
        request = self.writer.request(task=lambda: self._written_and_told(status))
        return lambda: self._durable("halted", request)


def _nothing() -> None:
    """Nothing to wait for."""
