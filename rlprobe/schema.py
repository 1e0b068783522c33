"""Reads `schemas/`: tables, metric vocabulary, framework aliases, failure patterns.

Everything here is data turned into typed values, loaded once and on demand. `arrow_fields` is the
only function that needs pyarrow.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
        detect: keys that give the framework away.
        sentinels: values that stand for "not measured", by the framework's key.
    """

    framework: str
    title: str
    detect: tuple[str, ...]
    strip_prefixes: tuple[str, ...]
    exact: Mapping[str, str]
    patterns: tuple[tuple[re.Pattern[str], str], ...]
    keep: frozenset[str]
    sentinels: Mapping[str, float]

    def canonical(self, key: str) -> str | None:
        """The canonical metric for a key of this framework; None if the vocabulary has none."""
        name = self._strip(key)
        if name in self.keep:
            return None
        if name in self.exact:
            return self.exact[name]
        for pattern, target in self.patterns:
            match = pattern.fullmatch(name)
            if match:
                return self._from_pattern(match["name"], target)
        return name if metric(name) else None

    def rank(self, key: str) -> int:
        """Precedence among keys that mean the same metric: the later in the file, the better."""
        name = self._strip(key)
        return list(self.exact).index(name) if name in self.exact else -1

    def sentinel(self, key: str) -> float | None:
        """The value of this key that stands for "not measured", if it has one."""
        return self.sentinels.get(self._strip(key))

    def _strip(self, key: str) -> str:
        for prefix in self.strip_prefixes:
            if key.startswith(prefix):
                return key[len(prefix) :]
        return key

    def _from_pattern(self, inner: str, target: str) -> str:
        if target.startswith("eval/"):
            inner = self.canonical(inner) or inner
        return target.replace("{name}", inner)


def _aliases(raw: Mapping[str, Any]) -> Aliases:
    patterns = tuple(
        (re.compile(re.escape(key).replace(r"\{name\}", "(?P<name>.+)")), target)
        for key, target in raw.get("patterns", {}).items()
    )
    return Aliases(
        framework=raw["framework"],
        title=raw["title"],
        detect=tuple(raw.get("detect", ())),
        strip_prefixes=tuple(raw.get("strip_prefixes", ())),
        exact=raw["aliases"],
        patterns=patterns,
        keep=frozenset(raw.get("keep", {}).get("keys", ())),
        sentinels=raw.get("sentinels", {}),
    )


@functools.cache
def aliases() -> Mapping[str, Aliases]:
    """Every alias file, by framework."""
    folder = files("rlprobe.schemas") / "aliases"
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".toml")]
    tables_ = [_aliases(tomllib.loads(entry.read_text(encoding="utf-8"))) for entry in found]
    return {table.framework: table for table in sorted(tables_, key=lambda table: table.framework)}


def detect_framework(keys: Iterable[str]) -> str | None:
    """The framework whose tell-tale keys occur most often among these keys, if any does."""
    present = set(keys)
    scores = {name: _score(table, present) for name, table in aliases().items()}
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] > 0 else None


def _score(table: Aliases, present: set[str]) -> int:
    prefixed = {prefix + key for prefix in ("", *table.strip_prefixes) for key in table.detect}
    return len(prefixed & present)


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
