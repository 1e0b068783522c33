"""Reads `schemas/`: tables, vocabulary, step keys, tell-tales of algorithms and failures.

Everything here is data turned into typed values, loaded once and on demand. Only `arrow_fields`
needs pyarrow. How frameworks name the metrics is said in `rlprobe.naming`.
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
TABLES = ("steps", "ranks", "workers", "events", "samples")


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
    """One entry of the vocabulary; a name ending in `/*` is a family.

    Attributes:
        kind: `loss`, `reward` or `gradient` where it tells how a run does; else empty.
    """

    name: str
    unit: str
    scale: Scale
    description: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """What a line of output of a dead run means; `alone`: also without a traceback before it."""

    kind: str
    pattern: re.Pattern[str]
    meaning: str
    remedy: str
    alone: bool = False


@dataclass(frozen=True, slots=True)
class KnownMessage:
    """A line that a framework prints, and what it tells.

    Attributes:
        needle: text that every such line has.
        expression: the pattern that such lines fit, which is compiled when it is first needed.
        kind: of the event that it becomes; "" for none.
        metrics: numbers for a row of metrics: the name of a group of the pattern, or a constant.
        largest: whether of several before one row the largest number counts, and not the last.
        rows: "bar": a row of its own where a progress bar tells the step; "step": at the step that
            the message names; "alone": its numbers count only where the output has no rows.
        relaunch: whether a later launch of the run begins with it.
    """

    name: str
    needle: str
    expression: str
    kind: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, str | float] = field(default_factory=dict)
    largest: bool = False
    rows: Literal["", "bar", "step", "alone"] = ""
    relaunch: bool = False

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern that such lines fit."""
        return _compiled(self.expression)


@functools.cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


def text(name: str) -> str:
    """A file of `schemas/`."""
    return (files("rlprobe.schemas") / name).read_text(encoding="utf-8")


def frameworks() -> tuple[str, ...]:
    """The frameworks that have an alias file, sorted."""
    folder = files("rlprobe.schemas") / "aliases"
    names = (entry.name for entry in folder.iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


@functools.cache
def _load(name: str) -> dict[str, Any]:
    return tomllib.loads(text(name))


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
        name: Metric(name, spec["unit"], spec["scale"], spec["description"], spec.get("kind", ""))
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
class StepKeys:
    """Names that logs have for the step; the better comes first.

    Attributes:
        keys: the usual ones.
        axes: the trainer's own, where a tracker counts something else.
        counters: keys that measure nothing, steps among them.
        formats: further names, by the format that has them.
        ranking: counters of all kinds in normal form, the best step first.
        other_folders: folders whose counters are none of training's steps.
        counted: words for what is counted.
        counted_how: words that may stand beside these in the name of a counter.
    """

    keys: tuple[str, ...]
    axes: tuple[str, ...]
    counters: frozenset[str]
    formats: Mapping[str, tuple[str, ...]]
    ranking: Mapping[str, int]
    other_folders: frozenset[str]
    counted: frozenset[str]
    counted_how: frozenset[str]


def whole(value: object) -> int | None:
    """A number as the step that it may be; None if it is no whole number."""
    if type(value) is int:
        return value
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**63 else None


@functools.cache
def step_keys() -> StepKeys:
    """Which of a row's numbers is its step."""
    raw = _load("steps.toml")
    return StepKeys(
        keys=tuple(raw["keys"]),
        axes=tuple(raw["axes"]),
        counters=frozenset([*raw["keys"], *raw["counters"]]),
        formats={name: tuple(keys) for name, keys in raw["formats"].items()},
        ranking={name: place for place, name in enumerate(raw["ranking"])},
        other_folders=frozenset(raw["other_folders"]),
        counted=frozenset(raw["counted"]),
        counted_how=frozenset(raw["counted_how"]),
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
    raw = _load("failures.toml")["failure"]
    return tuple(Failure(**it | {"pattern": re.compile(it["pattern"], re.I)}) for it in raw)


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


@functools.cache
def messages() -> tuple[KnownMessage, ...]:
    """The lines of frameworks that tell something beside metrics, in the order of the file."""
    raw = _load("messages.toml")["message"]
    return tuple(KnownMessage(expression=it.pop("pattern"), **it) for it in map(dict, raw))


def report_schema() -> dict[str, Any]:
    """The JSON Schema of `rlprobe scan --format json`."""
    import json

    schema: dict[str, Any] = json.loads(text("report.schema.json"))
    return schema
