"""All that a detector's author imports: the base class, knobs, and what a run offers.

A detector is one class in one file. It declares what it `needs`, its knobs, and which pathologies
may have `caused_by` it; `scan` asks the run for series and yields findings. It does no I/O.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar, dataclass_transform

from rlprobe.errors import ConfigError, Inconclusive
from rlprobe.findings import Evidence, Finding, Severity, State
from rlprobe.values import Attempt, Event, Rollout, Series

__all__ = [
    "Attempt",
    "Detector",
    "Event",
    "Evidence",
    "Finding",
    "Inconclusive",
    "Knob",
    "Rollout",
    "RunContext",
    "Series",
    "Severity",
    "State",
    "first_bad_sampled",
    "knob",
    "sampled_steps",
]


T = TypeVar("T")
Look = Callable[[int], T | None]


class RunContext(Protocol):
    """What a detector may ask of a run. Every series is the run's line: latest attempt wins."""

    @property
    def framework(self) -> str | None:
        """`trl`, `verl`, …; None when unknown."""
        ...

    @property
    def first_step(self) -> int:
        """First logged step of the run's line."""
        ...

    @property
    def last_step(self) -> int:
        """Last logged step of the run's line."""
        ...

    @property
    def interval(self) -> int:
        """Usual distance between logged steps, at least 1."""
        ...

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Launches into this directory, oldest first; empty when none are known."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the run is known to have ended badly at its last step."""
        ...

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """Metrics that were logged at least once, by canonical name, sorted."""
        ...

    def series(self, metric: str) -> Series | None:
        """One metric, or None if it was never logged."""
        ...

    def rank_series(self, metric: str) -> Mapping[int, Series]:
        """One metric of each rank that reported it."""
        ...

    def events(self, *kinds: str) -> tuple[Event, ...]:
        """Events of these kinds (all kinds if none is given), in order of time."""
        ...

    def setting(self, name: str) -> Any:
        """A setting of the run (`beta`, `max_completion_length`, `num_generations`, …) or None."""
        ...

    def sample_steps(self) -> tuple[int, ...]:
        """Steps for which rollouts were recorded, ascending."""
        ...

    def rollouts(self, step: int) -> tuple[Rollout, ...]:
        """Rollouts recorded at a step, group by group."""
        ...


def sampled_steps(steps: Sequence[int], most: int, last: int) -> list[int]:
    """About `most` steps, evenly spread, and the `last` ones: there a dying run is read closely."""
    stride = max(1, len(steps) // most)
    return sorted({*steps[::stride], *steps[-last:]})


def first_bad_sampled(
    run: RunContext, good: int | None, bad: T, step_of: Callable[[T], int], look: Look[T]
) -> T:
    """The first bad step with rollouts, by halving the steps between a good and a bad one.

    Args:
        good: a step that was read and is good; None if none was.
        bad: what was seen at a bad one.
        look: what is seen at a step, or None if it is not bad.
    """
    if good is None:
        return bad
    between = [step for step in run.sample_steps() if good < step < step_of(bad)]
    while between:
        middle = len(between) // 2
        seen = look(between[middle])
        if seen is not None:
            bad, between = seen, between[:middle]
        else:
            between = between[middle + 1 :]
    return bad


@dataclass(frozen=True, slots=True)
class Knob:
    """One tunable number of a detector, as `explain`, the docs and the configuration see it."""

    name: str
    default: float
    description: str
    unit: str
    minimum: float
    maximum: float

    def check(self, value: object, where: str) -> float:
        """The value as a float; ConfigError if it is no number or out of range."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{where}: {self.name} must be a number, not {value!r}")
        if not self.minimum <= value <= self.maximum:
            raise ConfigError(
                f"{where}: {self.name} = {value:g} is outside {self.minimum:g} … {self.maximum:g}"
            )
        return float(value)


def knob(
    default: float, description: str, *, unit: str = "", ge: float = 0.0, le: float = float("inf")
) -> Any:
    """Declare a tunable number of a detector.

    Write `spike_ratio: float = knob(10, "how many times the median", ge=1)`.
    """
    metadata = {"description": description, "unit": unit, "minimum": ge, "maximum": le}
    return field(default=float(default), metadata=metadata)


@dataclass_transform(field_specifiers=(knob,), kw_only_default=True)
class Detector:
    """Base of all detectors. The docstring of a subclass is its page in the catalogue.

    Class attributes:
        id: upper-case name of the pathology; the file has the same name in lower case.
        severity: the severity of its worst finding.
        needs: alternatives; each is a tuple of metrics, `event:<kind>`, `samples` or `ranks` (two
            ranks or more with values of their own) that together suffice. A name ending in `/*`
            asks for any metric of that family. An empty tuple means that the detector always runs.
        caused_by: ids of pathologies that may be the cause of this one.
        facts_only: it knows only facts (a NaN, a crash) and no statistics: finding nothing does
            not yet mean that the run was judged.
    """

    id: ClassVar[str]
    severity: ClassVar[Severity]
    needs: ClassVar[tuple[tuple[str, ...], ...]] = ()
    caused_by: ClassVar[tuple[str, ...]] = ()
    facts_only: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Turn the subclass into a frozen dataclass of its knobs."""
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Yield one finding per episode.

        Raises:
            Inconclusive: where a rule has too little data; findings yielded before it stand.
        """
        raise NotImplementedError

    @classmethod
    def knobs(cls) -> tuple[Knob, ...]:
        """The knobs in order of declaration."""
        return tuple(
            Knob(name=item.name, default=float(item.default), **item.metadata)  # type: ignore[arg-type]
            for item in dataclasses.fields(cls)  # type: ignore[arg-type]
        )

    @classmethod
    def title(cls) -> str:
        """First line of the page: the pathology in one sentence."""
        return (cls.__doc__ or "").strip().splitlines()[0]
