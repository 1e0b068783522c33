"""What a detector is: the base class, knobs, rules, and what a run offers.

A detector is one class in one file. It declares what it `needs`, its knobs, and which pathologies
may have `caused_by` it; `scan` asks the run for series and yields findings. It does no I/O. The
words its rules are written in are those of `rlprobe.rule`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    Protocol,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
)

from rlprobe.errors import ConfigError, Inconclusive
from rlprobe.findings import Evidence, Finding, Severity, State
from rlprobe.values import Attempt, Event, Rollout, Series

__all__ = [
    "SECTIONS",
    "STAGES",
    "Attempt",
    "Constant",
    "Detector",
    "Event",
    "Evidence",
    "Finding",
    "Inconclusive",
    "Knob",
    "Rollout",
    "Rule",
    "RunContext",
    "Series",
    "Severity",
    "Stage",
    "State",
    "fixed",
    "knob",
    "rule",
]


T = TypeVar("T")
Judge = TypeVar("Judge", bound=Callable[..., Any])


Stage = Literal[
    "machine",
    "groups",
    "advantage",
    "reward",
    "gradient",
    "loss",
    "policy",
    "rollout",
    "outcome",
]
STAGES: tuple[Stage, ...] = get_args(Stage)  # in the order in which trouble travels through a step


class RunContext(Protocol):
    """What a detector may ask of a run. Every series is of its lineage: the latest attempt wins.

    A run that was resumed is looked at more than once: as it is now, and as it was when an attempt
    ended that a later one overtook; what came after that is then not there.
    """

    @property
    def framework(self) -> str | None:
        """`trl`, `verl`, …; None when unknown."""
        ...

    @property
    def algorithm(self) -> str | None:
        """`GRPO`, `SFT`, `DPO`, …, as the run names it or its keys give it away."""
        ...

    @property
    def first_step(self) -> int:
        """First logged step of the run's lineage."""
        ...

    @property
    def last_step(self) -> int:
        """Last logged step of the run's lineage."""
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
    def overtaken(self) -> bool:
        """Whether this is the run as it was before a later attempt took over."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the run is known to have ended badly at its last step."""
        ...

    def incomplete(self, table: str) -> bool:
        """Whether part of `steps`, `ranks`, `events` or `samples` could not be read."""
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

    def abandoned_steps(self) -> tuple[int, ...]:
        """Steps from the first one on at which a launch was overtaken, with recorded rollouts."""
        ...

    def abandoned(self, step: int) -> tuple[Rollout, ...]:
        """Rollouts that the latest of the launches recorded that were overtaken by that step."""
        ...


@dataclass(frozen=True, slots=True)
class Knob:
    """One tunable number of a detector, as `explain`, the docs and the configuration see it.

    Attributes:
        whole: whether it counts something, so that only whole numbers make sense.
    """

    name: str
    default: float
    description: str
    unit: str
    minimum: float
    maximum: float
    whole: bool = False

    def check(self, value: object, where: str) -> float:
        """The value as a number; ConfigError if it is none, out of range, or not whole."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{where}: {self.name} must be a number, not {value!r}")
        if not self.minimum <= value <= self.maximum:
            raise ConfigError(
                f"{where}: {self.name} = {value:g} is outside {self.minimum:g} … {self.maximum:g}"
            )
        if not self.whole:
            return float(value)
        if value != int(value):
            raise ConfigError(f"{where}: {self.name} must be a whole number, not {value:g}")
        return int(value)


def knob(
    default: float,
    description: str,
    *,
    unit: str = "",
    minimum: float = 0.0,
    maximum: float = float("inf"),
) -> Any:
    """Declare a tunable number of a detector.

    Write `spike_ratio: float = knob(10, "times the median that make a spike", minimum=1)`; one that
    counts is declared `int`.
    """
    metadata = {"description": description, "unit": unit, "minimum": minimum, "maximum": maximum}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Constant:
    """A number that decides and is not for tuning, as the page shows it."""

    name: str
    value: Any
    description: str
    source: str

    @property
    def shown(self) -> str:
        """The value for people."""
        if isinstance(self.value, tuple | list | frozenset):
            return ", ".join(map(str, self.value))
        return f"{self.value:g}" if isinstance(self.value, int | float) else str(self.value)


class _Fixed(Generic[T]):
    """What `fixed` leaves in the class: its value to whoever asks, itself to `constants`."""

    def __init__(self, value: T, description: str, source: str) -> None:
        self.value = value
        self.description = description
        self.source = source

    def __get__(self, instance: object, owner: type) -> T:
        return self.value


def fixed(value: T, description: str, *, source: str = "") -> T:
    """Declare a number that decides and is shown on the page, but is not a knob.

    Write `span = fixed(5, "rows looked at together")` in the class, without a type.

    Args:
        source: paper or framework file that it is taken from; empty for a choice of this project.
    """
    return cast("T", _Fixed(value, description, source))


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of a detector's table of rules.

    Attributes:
        variant: what its findings are called; None for the rule that gives the detector its name.
        description: what is seen, how it is computed, how bad it is: its docstring.
        judge: the method, still to be bound.
    """

    variant: str | None
    description: str
    judge: Callable[..., Any]


def rule(variant: str | None) -> Callable[[Judge], Judge]:
    """Declare a method as the rule of a variant; its docstring becomes part of the page."""

    def declared(judge: Judge) -> Judge:
        judge.__rule__ = Rule(variant, inspect.getdoc(judge) or "", judge)  # type: ignore[attr-defined]
        return judge

    return declared


SECTIONS = (  # of a page, in this order
    "What it detects",
    "Why it matters",
    "How it is computed",
    "What to do",
    "When it is wrong",
    "References",
)
_COMPUTED, _NEXT = SECTIONS[2], f"\n\n{SECTIONS[3]}"


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
        stage: where in a training step it shows: `machine` (the launch, the ranks, the engine),
            `groups` (how far rewards differ within a group), `advantage`, `reward` (on average, and
            for what), `gradient`, `loss`, `policy` (KL, entropy, clipping), `rollout` (lengths,
            repetition, the cache), `outcome`. Of two pathologies that may cause each other and
            begin within two rows, the one of the earlier stage is the cause.
        facts_only: it knows only facts (a NaN, a crash) and no statistics: finding nothing does
            not yet mean that the run was judged.
    """

    id: ClassVar[str]
    severity: ClassVar[Severity]
    needs: ClassVar[tuple[tuple[str, ...], ...]] = ()
    caused_by: ClassVar[tuple[str, ...]] = ()
    stage: ClassVar[Stage] = "outcome"
    facts_only: ClassVar[bool] = False

    _knobs: ClassVar[Mapping[str, Knob]] = {}

    def __init_subclass__(cls) -> None:
        """Collect the knobs; their defaults become those of the class.

        What a frozen dataclass would do, without the code that one compiles for each class.
        """
        declared = {n: item for n, item in vars(cls).items() if isinstance(item, dataclasses.Field)}
        own: dict[str, Knob] = {}
        for name, item in declared.items():
            whole = cls.__annotations__.get(name) in ("int", int)
            given: Any = item.default
            default: float = given if whole else float(given)
            own[name] = Knob(name=name, default=default, whole=whole, **item.metadata)
            setattr(cls, name, default)
        cls._knobs = {**cls._knobs, **own}

    def __init__(self, **knobs: float) -> None:
        for name, value in knobs.items():
            if name not in self._knobs:
                raise TypeError(f"{self.id} has no knob '{name}'")
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a detector's knobs are given when it is made")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Yield one finding per episode: by default, those of every rule in turn.

        A rule that is inconclusive leaves the others to judge.

        Raises:
            Inconclusive: where a rule has too little data; findings yielded before it stand.
        """
        doubts: list[str] = []
        for entry in self.rules():
            try:
                yield from entry.judge(self, run)
            except Inconclusive as doubt:
                doubts.append(str(doubt))
        if doubts:
            raise Inconclusive("; ".join(dict.fromkeys(doubts)))

    @classmethod
    def knobs(cls) -> tuple[Knob, ...]:
        """The knobs in order of declaration."""
        return tuple(cls._knobs.values())

    @classmethod
    def constants(cls) -> tuple[Constant, ...]:
        """The numbers declared with `fixed`, in order of declaration."""
        return tuple(
            Constant(name, item.value, item.description, item.source)
            for name, item in vars(cls).items()
            if isinstance(item, _Fixed)
        )

    @classmethod
    def rules(cls) -> tuple[Rule, ...]:
        """The table of rules, in order of declaration; empty where there is but one way to fire."""
        return tuple(item.__rule__ for item in vars(cls).values() if hasattr(item, "__rule__"))

    @classmethod
    def title(cls) -> str:
        """First line of the page: the pathology in one sentence."""
        return (cls.__doc__ or "").strip().splitlines()[0]

    @classmethod
    def page(cls) -> str:
        """The docstring, with each variant's rule at the end of how it is computed."""
        text = inspect.cleandoc(cls.__doc__ or "")
        table = "".join(
            f"\n{_entry(f'`{entry.variant}`: {entry.description}')}"
            for entry in cls.rules()
            if entry.variant is not None
        )
        before, section, after = text.partition(_COMPUTED)
        computed, following, rest = after.partition(_NEXT)
        return f"{before}{section}{computed}{table}{following}{rest}"


def _entry(text: str) -> str:
    """One rule as an item of a list inside a section of the page."""
    import textwrap

    return textwrap.fill(
        " ".join(text.split()), 96, initial_indent="    - ", subsequent_indent="      "
    )
