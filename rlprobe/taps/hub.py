"""Where all taps of a process hand over what they saw."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from . import place
from .streams import Run, Stream, Streams

_MOST_HELD = 10  # rows that wait for a trainer that records itself, so long
_HELD_SECONDS = 30.0
_MOST_FAILURES = 20  # taps that are said to have failed
_TRAINER = "transformers.trainer"

Row = Tuple[str, Stream, Mapping[str, Any], Optional[int], bool]


class _State(threading.local):
    """Of a thread: whether a tapped call runs in it."""

    busy = False


class Hub:
    """Takes rows from taps, and gives each to the run that it belongs to.

    Attributes:
        state: of the calling thread.
        host: takes the rows of a process in which a trainer records itself: its name of the source,
            and the numbers.
    """

    def __init__(self) -> None:
        self.state = _State()
        self._lock = threading.RLock()
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Begin anew: what a forked child logs is not its parent's."""
        self.host: Optional[Callable[[str, Mapping[str, Any]], None]] = None
        self._lock = threading.RLock()
        self._streams = Streams(self._open)
        self._counts: Dict[Any, int] = {}
        self._known: Dict[int, Tuple[Any, int]] = {}
        self._held: List[Row] = []
        self._failures = 0
        self._is_barred = False

    # --- what taps call --------------------------------------------------------------------------

    def row(
        self,
        source: str,
        stream: Stream,
        values: Mapping[str, Any],
        step: Optional[int] = None,
        *,
        axes: bool = False,
    ) -> None:
        """Take a row of numbers.

        Args:
            source: the call that told them, as people know it.
            stream: which of the trackers of this process told them.
            step: None for the number of rows of this stream so far.
            axes: whether one of the numbers may be the trainer's step, and `step` the tracker's.
        """
        if not values or self._is_barred:
            return
        if self.host is not None:
            self.host(source, values)
            return
        if step is None:
            step = self.count(stream)
        run = self._streams.runs.get(stream)
        if run is None:
            run = self._run_of(source, stream, values, step, axes=axes)
        if run is not None:
            run.row(source, stream, values, step, axes=axes)

    def _run_of(
        self, source: str, stream: Stream, values: Mapping[str, Any], step: int, *, axes: bool
    ) -> Optional[Run]:
        """The run of a new stream; None where the row is not for us, or has to wait."""
        with self._lock:
            if not self._streams.runs and self._may_be_hosted():
                self._hold((source, stream, dict(values), step, axes))
                return None
            self._release()
            return self._streams.join(stream, step)

    def _may_be_hosted(self) -> bool:
        """Whether a trainer that records itself may be about to train."""
        return _TRAINER in sys.modules and len(self._held) < _MOST_HELD

    def _hold(self, row: Row) -> None:
        if not self._held:
            timer = threading.Timer(_HELD_SECONDS, self.release)
            timer.daemon = True
            timer.start()
            atexit.register(self.end)
        self._held.append(row)

    def release(self) -> None:
        """No trainer has come: record what was held for it."""
        with self._lock:
            if self.host is None:
                self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        for source, stream, values, step, axes in held:
            run = self._streams.join(stream, step or 0)
            if run is not None:
                run.row(source, stream, values, step or 0, axes=axes)

    def count(self, stream: Any) -> int:
        """How often this was asked for the same thing: the step of what has none, from 0."""
        count = self._counts.get(stream, 0)
        self._counts[stream] = count + 1
        return count

    def axis(self, stream: Stream, name: str) -> None:
        """A tracker was told which of its numbers is the step."""
        self._streams.declare(stream, name)

    def settings(self, stream: Stream, config: Mapping[str, Any]) -> None:
        """What a tracker was told of the run's settings."""
        if self.host is None and not self._is_barred:
            self._streams.settings(stream, config)

    def summary(self, source: str, stream: Stream, values: Mapping[str, Any]) -> None:
        """Numbers that stand for the run as a whole. A run that has no rows yet has none."""
        run = self._streams.runs.get(stream)
        if run is not None and values:
            run.summary(source, values)

    def text(self, source: str, stream: Stream, name: str, text: str, step: Optional[int]) -> None:
        """A text under a name."""
        if self.host is None and not self._is_barred:
            self._streams.text(stream, (source, name, text, step))

    def identity(self, thing: Any) -> int:
        """A number for an object, which no later one gets: `id` is used again."""
        known, number = self._known.get(id(thing), (None, 0))
        if known is not None and known() is thing:
            return number
        try:
            reference = weakref.ref(thing)
        except TypeError:
            return id(thing)
        number = self.count("identity")
        self._known[id(thing)] = reference, number
        return number

    def fail(self, source: str, error: BaseException) -> None:
        """A tap could not look: the call goes on, and the launcher is told."""
        self._failures += 1
        if self._failures <= _MOST_FAILURES:
            text = f"{source}: {type(error).__name__}: {str(error)[:200]}"
            place.tell("failed", text)

    # --- trainers that record themselves ---------------------------------------------------------

    def make_way(self) -> None:
        """A trainer that records itself begins: a run of a few rows before it is the same run."""
        with self._lock:
            if self._streams.give_way():
                self._streams = Streams(self._open)

    def be_hosted(self, host: Callable[[str, Mapping[str, Any]], None]) -> None:
        """From now on, rows of this process go to a trainer that records itself; those held too."""
        with self._lock:
            self.host = host
            held, self._held = self._held, []
        for source, _, values, _, _ in held:
            host(source, values)

    def end(self) -> None:
        """The process ends, and no trainer came: record what was held for it."""
        if self._held and self.host is None:
            self.release()
            self._streams.close()

    def training_ended(self, error: Optional[BaseException] = None) -> None:
        """A framework's training function returned or raised; its process may be killed next."""
        with self._lock:
            self._release()
        self._streams.finish(error)

    # --- runs ------------------------------------------------------------------------------------

    def _open(self, number: int, stream: Stream) -> Optional[Run]:
        """A new run of this process; None where it is not to record."""
        parent = place.recording_parent()
        if parent:
            self._is_barred = True
            place.tell("helper", f"{parent} {place.command()}")
            return None
        try:
            return _way_to_record()(number, stream)
        except Exception as error:
            self._is_barred = True
            self.fail("recording", error)
            return None


def _way_to_record() -> Callable[[int, Stream], Optional[Run]]:
    """The recorder's; the spool's where there is no rlprobe, or not what it needs."""
    if place.has_recorder():
        from . import recording

        return recording.open_run
    from . import spool

    return spool.open_run


HUB = Hub()
