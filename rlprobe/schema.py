"""Reads `schemas/`: tables, metric vocabulary, framework aliases, failure patterns.

Everything here is data turned into typed values, loaded once and on demand. `arrow_fields` is the
only function that needs pyarrow.
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


def _load(name: str) -> dict[str, Any]:
    return tomllib.loads((files("rlprobe.schemas") / name).read_text(encoding="utf-8"))


@functools.cache
def tables() -> Mapping[str, Table]:
    """The tables of a recording, by name."""
    raw = _load("tables.toml")
    return {name: _table(name, raw[name]) for name in TABLES}


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
    raw = _load("metrics.toml")
    raw.pop("distributions")
    return {
        name: Metric(name, spec["unit"], spec["scale"], spec["description"])
        for name, spec in raw.items()
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

    def canonical(self, key: str) -> str | None:
        """The canonical metric for a key of this framework; None if the vocabulary has none."""
        name = self.bare(key)
        if name in self.keep:
            return None
        if name in self.exact:
            return self.exact[name]
        for pattern, target in self.patterns:
            match = pattern.fullmatch(name)
            if match:
                return self._from_pattern(match, target)
        if metric(name):
            return name
        if self.normalise:
            return self._loosely(name)
        return aliases()["generic"].canonical(name) if self.inherits else None

    def _loosely(self, name: str) -> str | None:
        plain = normal(name)
        if plain in self.exact:
            return self.exact[plain]
        for pattern, target in self.patterns:
            match = pattern.fullmatch(plain)
            if match:
                return self._from_pattern(match, target)
        return plain if metric(plain) else None

    def rank(self, key: str) -> int:
        """Precedence among keys that mean the same metric: the later in the file, the better."""
        name = self.bare(key)
        return list(self.exact).index(name) if name in self.exact else -1

    def sentinel(self, key: str) -> float | None:
        """The value of this key that stands for "not measured", if it has one."""
        return self.sentinels.get(self.bare(key))

    def transform(self, key: str) -> tuple[float, float] | None:
        """Factor and offset of this key: the metric is `factor * logged + offset`."""
        return self.transforms.get(self.bare(key))

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
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".toml")]
    tables_ = [_aliases(tomllib.loads(entry.read_text(encoding="utf-8"))) for entry in found]
    return {table.framework: table for table in sorted(tables_, key=lambda table: table.framework)}


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
    return max(best, key=lambda name: _known(aliases()[name], present))


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


def _known(table: Aliases, present: set[str]) -> int:
    return sum(table.canonical(key) is not None for key in present)


@functools.cache
def failures() -> tuple[Failure, ...]:
    """What the last lines of a dead run mean, most telling first."""
    return tuple(
        Failure(
            entry["kind"],
            re.compile(entry["pattern"], re.IGNORECASE),
            entry["meaning"],
            entry["try"],
        )
        for entry in _load("failures.toml")["failure"]
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

    text = (files("rlprobe.schemas") / "report.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
