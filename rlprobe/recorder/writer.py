"""The writer: drains the buffer, encodes, hands over to the sink. The only place that may block."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from rlprobe.recorder.backlog import Backlog
from rlprobe.recorder.batches import Batches
from rlprobe.recorder.buffer import Buffer
from rlprobe.recorder.disk import DiskWatch
from rlprobe.recorder.health import Health
from rlprobe.recorder.intake import Intake
from rlprobe.recorder.requests import Inbox, Request
from rlprobe.recorder.rollouts import SamplePolicy
from rlprobe.recorder.sink import Sink
from rlprobe.store.faults import is_of_value

_ORDER = ("events", "steps", "ranks", "workers", "samples")  # what matters most is written first
_CHUNK = 32 * 1024 * 1024  # bytes of rows that are encoded at once


class Writer:
    """Owns the thread, the encoders and the sink.

    Whoever wants something written asks the thread and waits, for as long as it is patient. The
    lock is held for work in memory only; a fork waits for it, so that no child inherits half of
    it.

    Args:
        restore: makes a deleted run directory again; whether it was that.
        first: what the thread does at its start, once.
        report: tells the recording what was lost, when it is due and something can be written.
        describe: adds to the manifest what the rows have told of themselves.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        buffer: Buffer,
        sink: Sink,
        health: Health,
        disk: DiskWatch,
        *,
        rank: int,
        attempt: int,
        framework: str | None,
        role: str,
        policy: SamplePolicy,
        flush_seconds: float,
        restore: Callable[[], bool] = lambda: False,
        report: Callable[[], None] = lambda: None,
        describe: Callable[[dict[str, Any]], object] = lambda _: None,
        first: Callable[[], None] = lambda: None,
    ) -> None:
        self.buffer = buffer
        self.sink = sink
        self.health = health
        self.disk = disk
        self.flush_seconds = flush_seconds
        self.patience = max(flush_seconds, 1.0)  # an ordinary disk needs some time
        self.settled_step: int | None = None  # the highest step, where rows were replaced
        self.backlog = Backlog()
        self._intake = Intake(self.backlog, health, policy, attempt=attempt, rank=rank, role=role)
        self._batches = Batches(framework, health, attempt=attempt, rank=rank)
        self._encoded: dict[str, tuple[Any, int]] = {}  # oldest rows, while the disk takes none
        self._policy = policy
        self._restore = restore
        self._report = report
        self._describe = describe
        self._first = first
        buffer.wake.call = self._wake
        self._reset_thread()

    def _reset_thread(self) -> None:
        self._inbox = Inbox()
        self._lock = threading.RLock()  # for work in memory
        self._turn_lock = threading.RLock()  # one writes at a time
        self._start_lock = threading.RLock()
        self._forking: set[int] = set()  # threads that are about to
        self._lock_holder: int | None = None  # the one of them that has the lock
        self._stopping = False
        self._next_tidy = time.monotonic() + self.flush_seconds
        self._thread: threading.Thread | None = None

    # --- the thread ------------------------------------------------------------------------

    def start(self) -> bool:
        """Start the thread, unless it runs; False if the system gives none."""
        if self._thread is not None:
            return True
        with self._start_lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="rlprobe-writer", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # too many, or the interpreter shuts down
                    return False
                self._thread = thread
            return True

    def _wake(self) -> None:
        if not self._stopping and self.start():
            self._inbox.put(None)

    def stop_when_idle(self) -> None:
        """Write what is there, then end the thread; a later request starts another."""
        self._stopping = True
        self._inbox.put(None)

    def _run(self) -> None:
        self._do_first()
        while not self._has_ended():
            with self._turn_lock:
                self._turn(self._inbox.take(self.flush_seconds))
                self._tidy()

    def _do_first(self) -> None:
        first, self._first = self._first, lambda: None
        try:
            first()
        except Exception as error:  # housekeeping
            self.health.fail("tidy up", error)

    def _has_ended(self) -> bool:
        if not self._stopping:
            return False
        with self._start_lock:
            if not self._inbox.empty():
                return False
            self._thread = None
        return True

    def _turn(self, requests: list[Request]) -> None:
        done: list[bool] = []
        try:
            written = self._write_all([request.trigger for request in requests if request.trigger])
            for request in requests:
                answer = written if request.task is None else request.task()
                done.append(answer)
        except BaseException as error:  # the thread must not die of a value's own code
            if not is_of_value(error):
                raise
            self.health.fail("write", error)
        finally:
            for request, answer in zip(requests, [*done, *[False] * len(requests)], strict=False):
                request.answer(done=answer)

    def _tidy(self) -> None:
        if time.monotonic() < self._next_tidy or not self._inbox.empty() or self._stopping:
            return
        self._next_tidy = time.monotonic() + self.flush_seconds
        try:
            self.sink.tidy(self._lock, lambda: not self._inbox.empty())
        except Exception as error:  # merging is housekeeping: the shards stay as they are
            self.health.fail("merge", error)

    # --- what others ask -------------------------------------------------------------------

    def request(self, trigger: str = "", task: Callable[[], bool] | None = None) -> Request:
        """Ask for everything to be written, and for a task after it; `wait` on what is returned.

        Args:
            trigger: kind of the critical event that asks; the ring of rollouts is written too.
        """
        request = Request(self.disk, trigger, task)
        if self._thread is not None and self._thread is threading.current_thread():
            request.answer(done=False)  # a value's own code calls: nobody else could answer
        elif self.start():
            self._inbox.put(request)
            self.start()  # should it have ended meanwhile
        elif self._turn_lock.acquire(timeout=self.patience):
            try:
                self._turn([request])
            finally:
                self._turn_lock.release()
        else:
            request.answer(done=False)
        return request

    def flush(self, trigger: str = "") -> bool:
        """Make everything recorded so far durable; True when it is, and nothing was dropped now."""
        dropped = self.health.dropped()
        return self.wait(self.request(trigger)) and self.health.dropped() == dropped

    def wait(self, request: Request) -> bool:
        """Wait for a request, as long as the disk moves; True when it is done."""
        answer = request.wait(self.patience)
        if answer is None:
            self.health.count("calls_that_did_not_wait_for_the_disk")
            self.health.warn(
                "late",
                f"rlprobe: the disk did not answer for {self.patience:g} s; training goes on, what "
                "was recorded is not on disk yet",
            )
        return bool(answer)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be written."""
        return not self.buffer.waiting() and not self.backlog.counts()

    @property
    def last_step(self) -> int | None:
        """The highest step recorded so far."""
        if self.settled_step is not None:
            return self.settled_step
        steps = (self.buffer.last_step(), self._intake.last_step)
        return max((step for step in steps if step is not None), default=None)

    def totals(self) -> dict[str, int]:
        """What was dropped and what failed, by kind."""
        return self.health.totals()

    def unwritten(self) -> dict[str, int]:
        """Rows that wait to be written, by table."""
        counts = self.buffer.counts()
        for table, rows in self.backlog.counts().items():
            counts[table] = counts.get(table, 0) + rows
        return counts

    def move(self, attempt: int) -> None:
        """Record into another attempt from now on."""
        self._intake.attempt = self._batches.attempt = attempt
        self._encoded.clear()

    # --- writing, on the thread -------------------------------------------------------------

    def _write_all(self, triggers: list[str]) -> bool:
        written = self.write_out(triggers)
        if written and self.health.due():
            self._report()
            written = self.write_out()
        return written

    def write_out(self, triggers: list[str] | None = None) -> bool:
        """Write everything that waits; whether all of it is on disk. Only the thread calls it."""
        with self._lock:
            self._intake.take(self.buffer.drain())
            for trigger in triggers or ():
                self._intake.take_ring(trigger)
        self._trim()
        written = [self._write(table) for table in _ORDER]
        self._trim()
        news = self._batches.news()
        if news:
            self._describe(dict(news))
        return all(written)

    def _write(self, table: str) -> bool:
        while rows := self.backlog.oldest(table, _CHUNK):
            batch = self._encoded.get(table)
            if batch is None:
                with self._lock:
                    batch = self._batches.encode(table, rows, self.backlog, self.sink.encode)
            if batch is None:
                continue  # rows that no column can take have gone
            self._encoded[table] = batch
            if not self._store(table, *batch):
                return False
            del self._encoded[table]
            self.backlog.remove_oldest(table, batch[1])
        return True

    def _store(self, table: str, content: Any, count: int) -> bool:
        try:
            self.sink.write(table, content, count)
        except FileNotFoundError as error:
            return self._store_again(table, content, count, error)
        except Exception as error:
            self.health.fail("write", error)
            return False
        return True

    def _store_again(self, table: str, content: Any, count: int, error: Exception) -> bool:
        try:
            if self._restore():
                self.sink.write(table, content, count)
                return True
        except Exception as another:
            error = another
        self.health.fail("write", error)
        return False

    def _trim(self) -> None:
        """Keep what waits within its limit: the oldest rollouts go first."""
        limit = self.buffer.limit - self.buffer.limit // 8  # the rest is the training thread's
        rollouts = self._intake.rollouts
        dropped = self.backlog.trim(limit)
        while self.backlog.bytes + rollouts.ring_bytes() > limit:
            gone = rollouts.forget_oldest()
            if not rollouts.ring_bytes() and not gone:
                break
            dropped["samples"] = dropped.get("samples", 0) + gone
        for table, count in dropped.items():
            self._encoded.pop(table, None)
            self.health.drop(table, count, "more waits than may be held in memory")
        self.buffer.held = self.backlog.bytes + rollouts.ring_bytes()

    # --- fork --------------------------------------------------------------------------------

    def forking_here(self) -> bool:
        """Whether this very thread is about to fork (a signal handler may ask)."""
        return threading.get_ident() in self._forking

    def before_fork(self) -> None:
        """Let no work in memory be half done in the child."""
        here = threading.get_ident()
        self._forking.add(here)  # first: a signal may arrive while the lock is waited for
        if self._lock.acquire(timeout=min(self.patience, self.flush_seconds)):
            self._lock_holder = here

    def after_fork_in_parent(self) -> None:
        """Go on."""
        here = threading.get_ident()
        self._forking.discard(here)
        if self._lock_holder == here:
            self._lock_holder = None
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Forget the parent's rows and thread; the next record starts a thread of the child's."""
        self._reset_thread()
        self.disk.reset()
        self.buffer.clear()
        self.backlog.clear()
        self._encoded.clear()
        self._intake.after_fork(self._policy)
        self.health.reset()
        self.sink.after_fork()
