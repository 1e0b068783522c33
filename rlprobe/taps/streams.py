"""Which of a process's trackers tell of the same run.

A script may tell W&B and TensorBoard the same, and it may train three models one after another. The
first stream of each kind (the first W&B run, the first SummaryWriter) tells of the first run, the
second of the second. A writer for evaluations beside that for training tells of the same run.
"""

from __future__ import annotations

import os
from typing import (
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Set,
    Tuple,
)

EVALUATION = frozenset({"val", "valid", "validation", "test", "eval", "evaluation", "dev"})
_PREFIX = "eval/"
_MOST_TEXTS = 20  # that wait for a first row

Text = Tuple[str, str, str, Optional[int]]  # call, name, text, step


class Stream(NamedTuple):
    """What one tracker object tells.

    Attributes:
        kind: of tracker.
        identity: which of its kind.
        folder: where it writes, if that tells which writers belong together.
        goes_on: whether a new one whose steps begin behind the last one's goes on with its run.
        key: what names the run outside of this process as well (a trial of a search); else empty.
    """

    kind: str
    identity: Any
    folder: str = ""
    goes_on: bool = False
    key: str = ""


class Run(Protocol):
    """Takes what is told of one run."""

    @property
    def last_step(self) -> int:
        """The highest step so far."""
        ...

    def row(
        self, source: str, stream: Stream, values: Mapping[str, Any], step: int, *, axes: bool
    ) -> None:
        """A row of numbers."""

    def axis(self, name: str) -> None:
        """This number is the step, where a row has it."""

    def settings(self, config: Mapping[str, Any]) -> None:
        """Settings of the run."""

    def summary(self, source: str, values: Mapping[str, Any]) -> None:
        """Numbers that stand for the run as a whole."""

    def text(self, source: str, name: str, text: str, step: Optional[int]) -> None:
        """A text under a name."""

    def finish(self) -> None:
        """The run is over; the process goes on."""

    def crash(self, error: BaseException) -> None:
        """Training ended with this; the process may be killed before it can say so itself."""

    def give_way(self) -> bool:
        """End, if it has a few rows only and no other process its part in it; whether it did."""
        ...

    def close(self) -> None:
        """The process ends."""


class Prefixed:
    """A run, told of by a writer for evaluations."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def last_step(self) -> int:
        """The highest step so far."""
        return self._run.last_step

    def row(
        self, source: str, stream: Stream, values: Mapping[str, Any], step: int, *, axes: bool
    ) -> None:
        """A row of numbers, each below `eval/`."""
        named = {_PREFIX + name: value for name, value in values.items()}
        self._run.row(source, stream, named, step, axes=axes)

    def axis(self, name: str) -> None:
        """This number is the step, where a row has it."""
        self._run.axis(_PREFIX + name)

    def settings(self, config: Mapping[str, Any]) -> None:
        """Settings of the run."""
        self._run.settings(config)

    def summary(self, source: str, values: Mapping[str, Any]) -> None:
        """Numbers that stand for the run as a whole."""
        self._run.summary(source, {_PREFIX + name: value for name, value in values.items()})

    def text(self, source: str, name: str, text: str, step: Optional[int]) -> None:
        """A text under a name."""
        self._run.text(source, _PREFIX + name, text, step)

    def finish(self) -> None:
        """The writer is done; its run may not be."""

    def crash(self, error: BaseException) -> None:
        """The run is told itself."""

    def give_way(self) -> bool:
        """A run as a whole may."""
        return False

    def close(self) -> None:
        """The process ends."""
        self._run.close()


class Streams:
    """Joins streams to runs.

    Args:
        open_run: makes the n-th run of this process, told of by this stream; None for no run.

    Attributes:
        runs: by stream.
    """

    def __init__(self, open_run: Callable[[int, Stream], Optional[Run]]) -> None:
        self._open = open_run
        self.runs: Dict[Stream, Run] = {}
        self._opened: List[Optional[Run]] = []
        self._numbers: Dict[str, int] = {}
        self._latest: Dict[str, Stream] = {}
        self._axes: Dict[Stream, List[str]] = {}
        self._settings: Dict[Stream, Mapping[str, Any]] = {}
        self._texts: Dict[Stream, List[Text]] = {}

    def join(self, stream: Stream, step: int) -> Optional[Run]:
        """The run of a stream, by its first step."""
        if stream in self.runs:
            return self.runs[stream]
        run = self._beside(stream) or self._going_on(stream, step) or self._next(stream)
        if run is None:
            return None
        self.runs[stream] = run
        self._latest[stream.kind] = stream
        for name in self._axes.pop(stream, ()):
            run.axis(name)
        if stream in self._settings:
            run.settings(self._settings.pop(stream))
        for text in self._texts.pop(stream, ()):
            run.text(*text)
        return run

    def _beside(self, stream: Stream) -> Optional[Run]:
        """The run of a writer for training, or evaluations, in the same folder."""
        if not stream.folder:
            return None
        for other, run in self.runs.items():
            if other.kind == stream.kind and _belong_together(other.folder, stream.folder):
                return Prefixed(run) if _is_evaluation(stream.folder) else run
        return None

    def _going_on(self, stream: Stream, step: int) -> Optional[Run]:
        latest = self._latest.get(stream.kind)
        if not stream.goes_on or latest is None or step <= self.runs[latest].last_step:
            return None
        return self.runs[latest]

    def _next(self, stream: Stream) -> Optional[Run]:
        number = self._numbers.get(stream.kind, 0)
        self._numbers[stream.kind] = number + 1
        if number == len(self._opened):
            for run in self._opened[-1:]:
                if run is not None and not self._is_open(run, stream):
                    run.finish()
            self._opened.append(self._open(number + 1, stream))
        return self._opened[number]

    def _is_open(self, run: Run, stream: Stream) -> bool:
        """Whether writers of several folders may be in use at a time."""
        kinds: Set[str] = {other.kind for other, its in self.runs.items() if its is run}
        return bool(stream.folder) and stream.kind in kinds

    def declare(self, stream: Stream, axis: str) -> None:
        """A tracker was told which number is the step."""
        if stream in self.runs:
            self.runs[stream].axis(axis)
        else:
            self._axes.setdefault(stream, []).append(axis)

    def settings(self, stream: Stream, config: Mapping[str, Any]) -> None:
        """A tracker was told settings."""
        if stream in self.runs:
            self.runs[stream].settings(config)
        else:
            self._settings[stream] = {**self._settings.get(stream, {}), **config}

    def text(self, stream: Stream, text: Text) -> None:
        """A tracker was told a text; those before its first row wait for it."""
        if stream in self.runs:
            self.runs[stream].text(*text)
        elif len(self._texts.setdefault(stream, [])) < _MOST_TEXTS:
            self._texts[stream].append(text)

    def give_way(self) -> bool:
        """End the only run, if it has a few rows only; whether it did."""
        return len(self._opened) == 1 and self._opened[0] is not None and self._opened[0].give_way()

    def finish(self, error: Optional[BaseException] = None) -> None:
        """All training of this process is over, in order or with an exception."""
        for run in self._opened:
            if run is not None:
                if error is None:
                    run.finish()
                else:
                    run.crash(error)

    def close(self) -> None:
        """The process ends."""
        for run in self._opened:
            if run is not None:
                run.close()


def is_of_evaluations(metric: str) -> bool:
    """Whether a metric, or a pattern of them, is one of evaluations: `val/*`, `eval.accuracy`."""
    return metric.replace(".", "/").partition("/")[0].lower() in EVALUATION


def _is_evaluation(folder: str) -> bool:
    return os.path.basename(folder.rstrip("/\\")).lower() in EVALUATION


def _belong_together(one: str, other: str) -> bool:
    """Whether one of two folders is for evaluations, and the other one beside or above it."""
    one, other = one.rstrip("/\\"), other.rstrip("/\\")
    if one == other or _is_evaluation(one) == _is_evaluation(other):
        return False
    inner, outer = (one, other) if _is_evaluation(one) else (other, one)
    parent = os.path.dirname(inner)
    return outer == parent or os.path.dirname(outer) == parent
