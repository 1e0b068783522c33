"""`rlprobe.toml`, or `[tool.rlprobe]` in `pyproject.toml`: knobs, selection, waivers, gate policy.

    select = ["GRAD_PATHOLOGY"]          # only these
    ignore = ["TRUNCATION"]              # all but these
    detectors = ["./my_detectors"]       # folders with detectors of your own

    [knobs.GRAD_PATHOLOGY]
    spike_ratio = 20

    [gate]
    fail_on = "critical"                 # critical | warning | info | never
    require = ["GRAD_PATHOLOGY"]         # must have been checked, or the gate does not pass
    fail_on_resolved = false             # true: also for what a later attempt got past

    [[waivers]]                          # covers findings of this detector, and no other
    detector = "TRUNCATION"
    variant = "start"                    # only of this variant; default: of any
    steps = [1, 500]                     # only if all of it is in these steps; default: wherever
    reason = "short cap on purpose"
    until = 2027-01-31                   # the last day; default: without end

Every key is checked; an unknown one is an error that names the nearest known one.
"""

from __future__ import annotations

import datetime
import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from rlprobe import catalog
from rlprobe.detector import Detector
from rlprobe.errors import ConfigError
from rlprobe.findings import Finding, Severity

FILE = "rlprobe.toml"
_KEYS = ("select", "ignore", "detectors", "knobs", "gate", "waivers")
_GATE_KEYS = ("fail_on", "require", "fail_on_resolved")
_WAIVER_KEYS = ("detector", "variant", "steps", "reason", "until")


@dataclass(frozen=True, slots=True)
class Waiver:
    """A pathology that is known and accepted, why, and until when.

    Attributes:
        until: the last day on which it holds; None: without end.
        variant: the only variant that it covers; None: any.
        steps: first and last step; a finding that is not wholly between them is not covered.
    """

    detector: str
    reason: str
    until: datetime.date | None = None
    variant: str | None = None
    steps: tuple[int, int] | None = None

    def holds(self, today: datetime.date) -> bool:
        """Whether the waiver is still in force."""
        return self.until is None or today <= self.until

    def covers(self, finding: Finding) -> bool:
        """Whether it is about this finding; what follows from the finding is not covered."""
        if finding.detector != self.detector or self.variant not in (None, finding.variant):
            return False
        first, last = self.steps or (finding.first_bad_step, finding.last_bad_step)
        return first <= finding.first_bad_step and finding.last_bad_step <= last

    @property
    def what(self) -> str:
        """What it covers, in words."""
        variant = f":{self.variant}" if self.variant else ""
        steps = f" in steps {self.steps[0]:,} to {self.steps[1]:,}" if self.steps else ""
        return f"{self.detector}{variant}{steps}"


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """What fails a gate.

    Attributes:
        fail_on: lowest severity that fails; None: never.
        require: detectors that must have been able to judge.
        fail_on_resolved: whether what a later attempt got past fails as well.
    """

    fail_on: Severity | None = Severity.CRITICAL
    require: tuple[str, ...] = ()
    fail_on_resolved: bool = False


@dataclass(frozen=True, slots=True)
class Config:
    """Everything a scan can be told.

    Attributes:
        knobs: by detector id, then knob name; checked against the knobs' ranges.
        source: the file this came from; None for the defaults.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    detector_folders: tuple[Path, ...] = ()
    knobs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    gate: GatePolicy = field(default_factory=GatePolicy)
    waivers: tuple[Waiver, ...] = ()
    source: Path | None = None

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """The configuration of a file, or of the nearest one; defaults if there is none.

        Args:
            path: a file; None looks for `rlprobe.toml`, then for `[tool.rlprobe]` in
                `pyproject.toml`, in the working directory.

        Raises:
            ConfigError: the file is missing, no TOML, or has an unknown key or a bad value.
        """
        if path is not None:
            return cls.parse(_read(path), path)
        if Path(FILE).is_file():
            return cls.parse(_read(Path(FILE)), Path(FILE))
        project = Path("pyproject.toml")
        section = _read(project).get("tool", {}).get("rlprobe") if project.is_file() else None
        return cls() if section is None else cls.parse(section, project)

    @classmethod
    def parse(cls, raw: Mapping[str, Any], source: Path) -> Self:
        """The configuration of a parsed TOML table; ConfigError if it is not valid."""
        where = f"Couldn't use configuration '{source}'"
        _known(raw, _KEYS, where)
        folders = tuple(source.parent / name for name in _words(raw, "detectors", where))
        detectors = catalog.load(folders)
        return cls(
            select=_ids(_words(raw, "select", where), detectors, where),
            ignore=_ids(_words(raw, "ignore", where), detectors, where),
            detector_folders=folders,
            knobs=_knobs(raw.get("knobs", {}), detectors, where),
            gate=_gate(raw.get("gate", {}), detectors, where),
            waivers=tuple(_waiver(item, detectors, where) for item in raw.get("waivers", ())),
            source=source,
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"Couldn't read configuration '{path}': {error.strerror}", hint="Check the path."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"Couldn't read configuration '{path}': {error}") from error


def _known(raw: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    names = list(known)
    for key in raw:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else f"Known: {', '.join(names)}."
            raise ConfigError(f"{where}: unknown key '{key}'", hint=hint)


def _words(raw: Mapping[str, Any], key: str, where: str) -> list[str]:
    words = raw.get(key, [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ConfigError(f"{where}: '{key}' must be a list of strings, not {words!r}")
    return words


def _ids(
    words: Iterable[str], detectors: Mapping[str, type[Detector]], where: str
) -> tuple[str, ...]:
    ids = tuple(words)
    for word in ids:
        if word not in detectors:
            near = difflib.get_close_matches(word.upper(), detectors, n=1, cutoff=0.4)
            hint = f"Did you mean '{near[0]}'?" if near else "`rlprobe explain` lists them."
            raise ConfigError(f"{where}: no detector '{word}'", hint=hint)
    return ids


def _knobs(
    raw: Mapping[str, Any], detectors: Mapping[str, type[Detector]], where: str
) -> dict[str, dict[str, float]]:
    _ids(raw, detectors, where)
    checked: dict[str, dict[str, float]] = {}
    for detector_id, values in raw.items():
        knobs = {knob.name: knob for knob in detectors[detector_id].knobs()}
        place = f"{where}: knobs.{detector_id}"
        _known(values, knobs, place)
        checked[detector_id] = {name: knobs[name].check(v, place) for name, v in values.items()}
    return checked


def _gate(
    raw: Mapping[str, Any], detectors: Mapping[str, type[Detector]], where: str
) -> GatePolicy:
    _known(raw, _GATE_KEYS, f"{where}: gate")
    require = _ids(_words(raw, "require", where), detectors, where)
    resolved = raw.get("fail_on_resolved", False)
    if not isinstance(resolved, bool):
        raise ConfigError(f"{where}: 'fail_on_resolved' must be true or false, not {resolved!r}")
    return GatePolicy(parse_fail_on(raw.get("fail_on", "critical")), require, resolved)


def parse_fail_on(word: str) -> Severity | None:
    """The severity for `critical|warning|info`, None for `never`; ConfigError for anything else."""
    if word == "never":
        return None
    try:
        return Severity.parse(word)
    except (ValueError, AttributeError):
        raise ConfigError(
            f"Couldn't use fail-on '{word}': not one of critical, warning, info, never"
        ) from None


def _waiver(raw: Mapping[str, Any], detectors: Mapping[str, type[Detector]], where: str) -> Waiver:
    _known(raw, _WAIVER_KEYS, f"{where}: waivers")
    if not raw.get("reason"):
        raise ConfigError(f"{where}: a waiver needs a reason")
    (detector,) = _ids([raw.get("detector", "")], detectors, where)
    until = raw.get("until")
    if isinstance(until, datetime.datetime):
        until = until.date()
    if until is not None and not isinstance(until, datetime.date):
        raise ConfigError(f"{where}: 'until' must be a date like 2027-01-31, not {until!r}")
    variant, steps = raw.get("variant"), raw.get("steps")
    known = {rule.variant for rule in detectors[detector].rules()}
    if variant is not None and not known & {variant, "*"}:
        listed = ", ".join(sorted(name for name in known if name)) or "none"
        raise ConfigError(
            f"{where}: {detector} has no variant {variant!r}", hint=f"It has {listed}."
        )
    return Waiver(detector, raw["reason"], until, variant, _steps(steps, where))


def _steps(raw: object, where: str) -> tuple[int, int] | None:
    if raw is None:
        return None
    whole = isinstance(raw, list) and [type(step) for step in raw] == [int, int]
    if not whole or raw[0] > raw[1]:  # type: ignore[index]
        raise ConfigError(f"{where}: 'steps' must be the first and the last step, not {raw!r}")
    return raw[0], raw[1]  # type: ignore[index]
