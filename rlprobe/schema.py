"""Reads `schemas/`: tables, vocabulary, aliases, step keys, tell-tales of algorithms and failures.

Everything here is data turned into typed values, loaded once and on demand. Only
`arrow_fields` needs pyarrow, and only `Aliases.apply` NumPy.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_VERSION = 1  # of the recording; 1: first published layout
REPORT_VERSION = 1  # of the JSON report

Scale = Literal["log", "linear", "fraction", "signed"]
TABLES = ("steps", "ranks", "events", "samples")
Logged = tuple[Any, Any]  # values, and whether each was logged
_MOST_PLANS = 1_000  # of sets of keys, per framework


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table of the recording."""

    name: str
    type: str
    required: bool
    description: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the recording. `metrics`: further double columns, one per metric, may follow."""

    name: str
    title: str
    metrics: bool
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """One entry of the vocabulary; a name ending in `/*` is a family."""

    name: str
    unit: str
    scale: Scale
    description: str


@dataclass(frozen=True, slots=True)
class Failure:
    """What a line of output of a dead run means."""

    kind: str
    pattern: re.Pattern[str]
    meaning: str
    remedy: str


def _text(name: str) -> str:
    return (files("rlprobe.schemas") / name).read_text(encoding="utf-8")


@functools.cache
def _load(name: str) -> dict[str, Any]:
    return tomllib.loads(_text(name))


@functools.cache
def tables() -> Mapping[str, Table]:
    """The tables of a recording, by name."""
    return {name: _table(name, _load("tables.toml")[name]) for name in TABLES}


def _table(name: str, raw: Mapping[str, Any]) -> Table:
    columns = tuple(
        Column(column, spec["type"], spec.get("required", False), spec["description"])
        for column, spec in raw["columns"].items()
    )
    return Table(name, raw["title"], raw["metrics"], columns)


@functools.cache
def event_kinds() -> Mapping[str, str]:
    """Known event kinds and what each means; users may add their own."""
    kinds: dict[str, str] = _load("tables.toml")["event_kinds"]
    return kinds


def arrow_fields(table: str) -> tuple[pa.Field, ...]:
    """The fixed Arrow fields of a table, in order."""
    import pyarrow as pa

    types: dict[str, pa.DataType] = {
        "int32": pa.int32(),
        "int64": pa.int64(),
        "double": pa.float64(),
        "bool": pa.bool_(),
        "string": pa.string(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "map<string,double>": pa.map_(pa.string(), pa.float64()),
    }
    return tuple(
        pa.field(column.name, types[column.type], nullable=not column.required)
        for column in tables()[table].columns
    )


@functools.cache
def metrics() -> Mapping[str, Metric]:
    """The vocabulary, by canonical name (families under their `/*` name)."""
    return {
        name: Metric(name, spec["unit"], spec["scale"], spec["description"])
        for name, spec in _load("metrics.toml").items()
        if name != "distributions"
    }


@functools.cache
def distributions() -> Mapping[str, str]:
    """Array arguments of `Recorder.step` and the base name of what they are reduced to."""
    bases: dict[str, str] = _load("metrics.toml")["distributions"]
    return bases


def metric(name: str) -> Metric | None:
    """The vocabulary entry for a canonical name, through its family if need be."""
    known = metrics()
    if name in known:
        return known[name]
    family, slash, _ = name.partition("/")
    return known.get(f"{family}/*") if slash else None


@dataclass(frozen=True, slots=True)
class Naming:
    """What becomes of one key: its canonical name, and how its values are to be read.

    Attributes:
        sentinel: the logged value that stands for "not measured".
        transform: factor and offset that turn a logged value into the metric's.
    """

    key: str
    name: str
    sentinel: float | None
    transform: tuple[float, float] | None


@dataclass(frozen=True, slots=True, eq=False)
class Aliases:
    """How one framework names the metrics.

    Attributes:
        detect: keys that give the framework away; one that ends in `*` stands for every key that
            starts so.
        sentinels: values that stand for "not measured", by the framework's key.
        transforms: factor and offset that turn a logged value into the metric's, by the key.
        witnesses: keys that the framework leaves out of a row when their value is not finite, each
            with the key that shows that the row is there.
        normalise: whether case, spaces and punctuation make no difference.
        inherits: whether the plain names count as well, because users add their own metrics.
        raw_patterns: the patterns as they are written in the file.
    """

    framework: str
    title: str
    detect: tuple[str, ...]
    strip_prefixes: tuple[str, ...]
    exact: Mapping[str, str]
    patterns: tuple[tuple[re.Pattern[str], str], ...]
    keep: frozenset[str]
    sentinels: Mapping[str, float]
    transforms: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    witnesses: Mapping[str, str] = field(default_factory=dict)
    normalise: bool = False
    inherits: bool = False
    raw_patterns: Mapping[str, str] = field(default_factory=dict)
    _plans: dict[tuple[str, ...], tuple[Naming, ...]] = field(default_factory=dict, repr=False)

    def apply(self, columns: Mapping[str, Logged]) -> dict[str, Logged]:
        """Logged columns as metrics: sentinels out, in the metric's unit, under canonical names.

        A column is its values and whether each was logged: two arrays of one length, or a number
        and a bool. A key without a metric keeps its name. Of two keys that mean the same, the
        better one counts where it was logged.
        """
        named: dict[str, Logged] = {}
        for key in self.plan(tuple(columns)):
            values, logged = columns[key.key]
            if key.sentinel is not None:
                logged = logged & (values != key.sentinel)
            if key.transform is not None:
                values = values * key.transform[0] + key.transform[1]
            if key.name in named:
                import numpy as np

                worse, had = named[key.name]
                values, logged = np.where(logged, values, worse), logged | had
            named[key.name] = (values, logged)
        return named

    def plan(self, keys: tuple[str, ...]) -> tuple[Naming, ...]:
        """What becomes of each of these keys, of those that mean the same the best one last."""
        if keys not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            ranks = {name: rank for rank, name in enumerate(self.exact)}
            ordered = sorted(keys, key=lambda key: (ranks.get(self.bare(key), -1), key))
            self._plans[keys] = tuple(self.naming(key) for key in ordered)
        return self._plans[keys]

    def naming(self, key: str) -> Naming:
        """What becomes of one key."""
        bare = self.bare(key)
        name = self.canonical(key) or key
        return Naming(key, name, self.sentinels.get(bare), self.transforms.get(bare))

    def canonical(self, key: str) -> str | None:
        """The canonical metric for a key of this framework; None if the vocabulary has none."""
        name = self.bare(key)
        if name in self.keep:
            return None
        known = self._listed(name) or (name if metric(name) else None)
        if known:
            return known
        if self.normalise:
            plain = normal(name)
            return self._listed(plain) or (plain if metric(plain) else None)
        return aliases()["generic"].canonical(name) if self.inherits else None

    def _listed(self, name: str) -> str | None:
        if name in self.exact:
            return self.exact[name]
        matches = ((pattern.fullmatch(name), target) for pattern, target in self.patterns)
        return next((self._from_pattern(m, target) for m, target in matches if m), None)

    def bare(self, key: str) -> str:
        """A key without the prefix that a tracker put before it."""
        if key in self.exact:
            return key
        for prefix in self.strip_prefixes:
            if key.startswith(prefix):
                return key[len(prefix) :]
        return key

    def _from_pattern(self, match: re.Match[str], target: str) -> str:
        if "{name}" not in target:
            return target
        inner = match["name"]
        if target.startswith("eval/"):
            inner = self.canonical(inner) or inner
        return target.replace("{name}", inner)


def normal(name: str) -> str:
    """A name in lower case, with `_` for everything that is neither letter nor digit."""
    return re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_")


def _aliases(raw: Mapping[str, Any]) -> Aliases:
    return Aliases(
        framework=raw["framework"],
        title=raw["title"],
        detect=tuple(raw.get("detect", ())),
        strip_prefixes=tuple(raw.get("strip_prefixes", ())),
        exact=raw["aliases"],
        patterns=tuple((_pattern(k), target) for k, target in raw.get("patterns", {}).items()),
        keep=frozenset(raw.get("keep", {}).get("keys", ())),
        sentinels=raw.get("sentinels", {}),
        transforms={key: _transform(how) for key, how in raw.get("transform", {}).items()},
        witnesses=raw.get("absent_when_nonfinite", {}),
        normalise=raw.get("normalise", False),
        inherits=raw.get("inherits", False),
        raw_patterns=raw.get("patterns", {}),
    )


def _pattern(key: str) -> re.Pattern[str]:
    """`{name}` is what the target takes over, `*` is anything."""
    return re.compile(re.escape(key).replace(r"\{name\}", "(?P<name>.+)").replace(r"\*", ".+"))


def _transform(how: Mapping[str, float]) -> tuple[float, float]:
    return how.get("sign", 1) * how.get("factor", 1.0), how.get("offset", 0.0)


@functools.cache
def aliases() -> Mapping[str, Aliases]:
    """Every alias file, by framework."""
    folder = files("rlprobe.schemas") / "aliases"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    every = (_aliases(tomllib.loads(_text(f"aliases/{name}"))) for name in names)
    return {table.framework: table for table in every}


def detect_framework(keys: Iterable[str]) -> str | None:
    """The framework whose tell-tale keys occur most often among these keys, if any does.

    Of two with as many, the one that knows more of the keys.
    """
    present = set(keys)
    scores = {name: _score(table, present) for name, table in aliases().items()}
    most = max(scores.values(), default=0)
    if not most:
        return None
    best = [name for name, score in scores.items() if score == most]
    known = {name: sum(map(bool, map(aliases()[name].canonical, present))) for name in best}
    return max(best, key=known.__getitem__)


def _score(table: Aliases, present: set[str]) -> int:
    score = 0
    for key in table.detect:
        wanted = [prefix + key for prefix in ("", *table.strip_prefixes)]
        if key.endswith("*"):
            starts = tuple(name[:-1] for name in wanted)
            score += any(name.startswith(starts) for name in present)
        else:
            score += any(name in present for name in wanted)
    return score


@dataclass(frozen=True, slots=True)
class StepKeys:
    """Names that logs have for the step; the better comes first.

    Attributes:
        keys: the usual ones.
        axes: the trainer's own, where a tracker counts something else.
        counters: keys that measure nothing, steps among them.
        formats: further names, by the format that has them.
    """

    keys: tuple[str, ...]
    axes: tuple[str, ...]
    counters: frozenset[str]
    formats: Mapping[str, tuple[str, ...]]


@functools.cache
def step_keys() -> StepKeys:
    """Which of a row's numbers is its step."""
    raw = _load("steps.toml")
    return StepKeys(
        keys=tuple(raw["keys"]),
        axes=tuple(raw["axes"]),
        counters=frozenset([*raw["keys"], *raw["counters"]]),
        formats={name: tuple(keys) for name, keys in raw["formats"].items()},
    )


def detect_algorithm(keys: Iterable[str]) -> str | None:
    """The algorithm that these keys give away, if they do."""
    present = {key.removeprefix("train/") for key in keys}
    for entry in _load("algorithms.toml")["algorithm"]:
        needed = set(entry.get("all", ()))
        if present.intersection(entry.get("any", ())) or (needed and needed <= present):
            name: str = entry["name"]
            return name
    return None


@functools.cache
def failures() -> tuple[Failure, ...]:
    """What the last lines of a dead run mean, most telling first."""
    return tuple(
        Failure(raw["kind"], re.compile(raw["pattern"], re.I), raw["meaning"], raw["try"])
        for raw in _load("failures.toml")["failure"]
    )


def classify_failure(lines: Iterable[str]) -> tuple[Failure, str] | None:
    """The failure that these last lines of output tell of, with the most telling line.

    Entries are tried in the order of `failures.toml`; within one entry the last line wins.
    """
    backwards = list(lines)[::-1]
    for failure in failures():
        for line in backwards:
            if failure.pattern.search(line):
                return failure, line.strip()
    return None


def report_schema() -> dict[str, Any]:
    """The JSON Schema of `rlprobe scan --format json`."""
    import json

    schema: dict[str, Any] = json.loads(_text("report.schema.json"))
    return schema
