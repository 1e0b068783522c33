"""What a run is made of: series, events, rollouts, and when rewards are equal. No I/O.

Everything that travels from a recording or a log to a detector is one of these frozen values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

ROUNDING = 1e-6  # of the rewards' magnitude: a smaller difference is rounding noise


def rounding(magnitude: ArrayLike) -> FloatArray:
    """The largest difference between rewards of such a magnitude that counts as none.

    A millionth of it, and of 1 where it is smaller; NaN for a magnitude that is not known.
    """
    return ROUNDING * np.maximum(1.0, np.abs(np.asarray(magnitude, dtype=np.float64)))


def flat(rewards: ArrayLike) -> BoolArray:
    """Whether the rewards of a group are equal, up to rounding; False if one is not finite.

    Args:
        rewards: shape (..., n) with n from 1: the last axis is the group; the others remain.
    """
    values = np.asarray(rewards, dtype=np.float64)
    lowest, highest = values.min(axis=-1), values.max(axis=-1)
    with np.errstate(invalid="ignore"):  # Inf - Inf
        span = highest - lowest
    limit = rounding(np.maximum(np.abs(lowest), np.abs(highest)))
    equal: BoolArray = np.isfinite(span) & (span <= limit)
    return equal


@dataclass(frozen=True, slots=True)
class Series:
    """One metric over the steps at which it was logged.

    Attributes:
        name: canonical metric name.
        steps: int64, shape (n,), strictly increasing.
        values: float64, shape (n,). NaN and Inf are values that were measured; a step at which
            the metric was not logged is simply not there.
    """

    name: str
    steps: IntArray
    values: FloatArray

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a moment: a checkpoint, a NaN, a restart, the end.

    Attributes:
        kind: one of the kinds in `schemas/tables.toml`, or a user's own.
        step: optimizer step, or None where none is known.
        time: seconds since the epoch, UTC; NaN where unknown.
        data: decoded JSON object of the event.
    """

    kind: str
    step: int | None
    time: float = float("nan")
    attempt: int = 1
    rank: int = 0
    message: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rollout:
    """One recorded completion with what it earned. None: not recorded."""

    step: int
    group_id: str
    sample_id: str
    attempt: int = 1
    rank: int = 0
    prompt_id: str = ""
    prompt: str | None = None
    completion: str | None = None
    reward: float | None = None
    reward_components: Mapping[str, float] = field(default_factory=dict)
    advantage: float | None = None
    completion_length: int | None = None
    truncated: bool | None = None
    logprob_mean: float | None = None
    kl: float | None = None
    capture_reason: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One launch into a run directory.

    Attributes:
        number: 1, 2, …; a relaunch into the same directory is the next one.
        ended: how it ended (`completed`, `crashed`, `halted`, `killed`), `running` while its
            processes are alive, `vanished` when they are gone without a word, `unknown` when that
            cannot be told (another machine, a foreign log).
    """

    number: int
    first_step: int | None = None
    last_step: int | None = None
    ended: str = "unknown"
    started: float = float("nan")
    world_size: int = 1


def two_counters(attempts: Sequence[Attempt]) -> bool:
    """Whether these are no launches: steps go back again and again, two counters in one file.

    A launch goes back to the newest checkpoint, or far less than it has gained: of four that each
    begin later than the one before, most lose less than they keep. Of two counters in one file, the
    higher one seems to be lost nearly whole each time.
    """
    known = [(x.first_step, x.last_step) for x in attempts]
    spans = [(first, last) for first, last in known if first is not None and last is not None]
    begins = [first for first, _ in spans]
    if len(spans) < 4 or any(one >= two for one, two in pairwise(begins[1:])):
        return False
    lost = sum(last - two > two - first for (first, last), (two, _) in pairwise(spans))
    return 2 * lost > len(spans) - 1


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the input that could not be read, and was left out.

    Attributes:
        table: what of the run it is a part of: `steps`, `ranks`, `events`, `samples`, `run` (what
            the run is) or `attempts`; empty where nothing of the run is missing.
    """

    path: str
    message: str
    table: str = ""


@dataclass(frozen=True, slots=True)
class Unread:
    """Pieces of a log that look like metrics and were not understood.

    Attributes:
        thing: what the pieces are: `line`, `row`, `cell`, `column`.
        count: how many.
        of: how many pieces look like metrics in all, those that were read included.
        examples: a few of them as they stand in the log, each with its number, from 1.
        files: of each example, where a run has several; none where it has one.
    """

    thing: str
    count: int
    of: int
    examples: tuple[tuple[int, str], ...] = ()
    files: tuple[str, ...] = ()

    def file(self, place: int) -> str:
        """The file of an example; empty where the run has one file."""
        return self.files[place] if place < len(self.files) else ""


_MOST_EXAMPLES = 3


def together(parts: Iterable[Unread]) -> tuple[Unread, ...]:
    """What parts of one run leave unread: counts add up by thing, the first few examples remain."""
    by_thing: dict[str, Unread] = {}
    for part in parts:
        known = by_thing.get(part.thing, Unread(part.thing, 0, 0))
        examples = [
            (example, item.file(place))
            for item in (known, part)
            for place, example in enumerate(item.examples)
        ][:_MOST_EXAMPLES]
        by_thing[part.thing] = Unread(
            part.thing,
            known.count + part.count,
            known.of + part.of,
            tuple(example for example, _ in examples),
            tuple(file for _, file in examples) if any(file for _, file in examples) else (),
        )
    return tuple(by_thing.values())
