"""A run that taps tell of, recorded by the recorder. Only this module needs rlprobe itself."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from rlprobe import environment, schema
from rlprobe.recorder import Recorder, launch

from . import place
from .slots import directory, leave, slot_of
from .streams import Run, Stream

_FEW = 10  # rows, such as of the size of a data set
_FLUSH_SECONDS = 0.5  # what a kill can cost: some stacks end their workers so
_MOST_SUMMARIES = 100
_MOST_TEXTS = 200
_LONGEST_TEXT = 2_000  # characters
_LONGEST = 60  # characters of a run's name


def open_run(number: int, stream: Stream) -> Run | None:
    """The n-th run of this process; None where the launcher records nothing.

    Raises:
        InputError: its directory cannot be written.
    """
    run_dir = os.environ.get(environment.RUN)
    return None if not run_dir else RecordedRun(run_dir, number, stream)


def run_name(number: int, stream: Stream, *, ranked: bool) -> str:
    """What this run is called among those of the launch; ranks come to the same name."""
    if stream.key:
        return f"{stream.kind}.{stream.key}.{number}"[:_LONGEST]
    words = sys.argv[:1] if ranked else sys.argv
    command = hashlib.blake2b("\0".join(words).encode(errors="replace"), digest_size=6).hexdigest()
    return f"taps.{command}.{number}"


class RecordedRows:
    """Rows of numbers as trackers count them, recorded at the trainer's step where they hold one.

    Args:
        is_rank: whether this process is one of several ranks: then rows are its own as well.

    Attributes:
        last_step: the highest step so far.
        count: of rows so far.
    """

    def __init__(self, recorder: Recorder, *, is_rank: bool) -> None:
        self.recorder = recorder
        self.last_step = -1
        self.count = 0
        self._is_rank = is_rank
        self._axes = schema.step_keys().axes
        self._step: int | None = None  # of the trainer's own counting

    def row(self, values: Mapping[str, Any], step: int, *, axes: bool) -> None:
        """Record a row of numbers.

        Args:
            axes: whether one of them may be the trainer's step, and `step` the tracker's.
        """
        if axes:
            step = self._counted(values, step)
        if type(step) is int and step > self.last_step:
            self.last_step = step
        self.count += 1
        self.recorder.step(step, **values)
        if self._is_rank:
            self.recorder.rank_step(step, **values)

    def _counted(self, values: Mapping[str, Any], step: int) -> int:
        """The trainer's own step where a row has it, else the one before, else the tracker's."""
        for name in self._axes:
            if name in values:
                own = schema.whole(values[name])
                if own is not None:
                    self._step = own
                    break
        return step if self._step is None else self._step

    def axis(self, name: str) -> None:
        """This number is the step, where a row has it."""
        if name not in self._axes:
            self._axes = (name, *self._axes)


class RecordedRun:
    """One run of this process."""

    def __init__(self, run_dir: str, number: int, stream: Stream) -> None:
        where = launch.place()
        rank, size = place.distributed() or (where.rank, where.world_size)
        role = place.role()
        self._slot = 1
        self._is_alone = size == 1 and role == place.TRAINER
        if role == place.TRAINER:
            name = run_name(number, stream, ranked=size > 1)
            self._slot = slot_of(name, alone=self._is_alone)
        self._recorder = Recorder(
            directory(run_dir, self._slot),
            framework="auto",
            rank=rank,
            world_size=size,
            role=role,
            flush_seconds=_FLUSH_SECONDS,
        )
        self._rows = RecordedRows(self._recorder, is_rank=size > 1)
        self._is_trainer = role == place.TRAINER
        self._sources: set[str] = set()
        self._summaries = self._texts = 0

    @property
    def last_step(self) -> int:
        """The highest step so far."""
        return self._rows.last_step

    def row(
        self, source: str, stream: Stream, values: Mapping[str, Any], step: int, *, axes: bool
    ) -> None:
        """Record a row of numbers."""
        if self._is_trainer and source not in self._sources:
            self._sources.add(source)
            place.tell("sources", f"{source}\t{self._recorder.run_dir}")
        self._rows.row(values, step, axes=axes)

    def axis(self, name: str) -> None:
        """This number is the step, where a row has it."""
        self._rows.axis(name)

    def settings(self, config: Mapping[str, Any]) -> None:
        """Settings of the run."""
        self._recorder.describe(config=config)

    def summary(self, source: str, values: Mapping[str, Any]) -> None:
        """Numbers that stand for the run as a whole; of very many tellings, the first ones."""
        self._summaries += 1
        if self._summaries <= _MOST_SUMMARIES:
            step = self.last_step if self.last_step >= 0 else None
            self._recorder.event("summary", source, step=step, **values)

    def text(self, source: str, name: str, text: str, step: int | None) -> None:
        """A text under a name, as an event; of very many, the first ones, and of each the start."""
        self._texts += 1
        if self._texts <= _MOST_TEXTS:
            self._recorder.event(
                "logged_text", f"{name}: {text[:_LONGEST_TEXT]}", step=step, name=name, call=source
            )

    def finish(self) -> None:
        """The run is over; the process goes on."""
        self._recorder.finish()

    def crash(self, error: BaseException) -> None:
        """Training ended with this; the process may be killed before it can say so itself."""
        self._recorder.crash(error, step=self.last_step if self.last_step >= 0 else None)
        self._recorder.close("crashed")

    def give_way(self) -> bool:
        """End, if it has a few rows only and no other process its part in it; whether it did."""
        if not self._is_alone or self._rows.count > _FEW:
            return False
        self.close()
        leave(self._slot)
        return True

    def close(self) -> None:
        """The process ends, and opened it late; else the recorder sees that itself."""
        self._recorder.close()
