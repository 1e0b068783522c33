"""Learns knobs from healthy runs: the smallest change that keeps each detector quiet on them.

A detector that raises an alarm on a run known to be healthy is too strict for that team's runs. Its
knobs are tried one at a time, in both directions, in growing steps; the first setting that is quiet
on enough of the runs is taken. What was learnt is tested on each run with the knobs learnt from the
others (leave one out): that is the false-alarm rate to expect, not the rate on the runs themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlprobe import catalog
from rlprobe.config import Config
from rlprobe.detector import Detector, Knob
from rlprobe.errors import Inconclusive
from rlprobe.findings import Severity
from rlprobe.scan.context import Context
from rlprobe.scan.engine import missing_needs
from rlprobe.store.run import Run

_STEPS = 12  # of a fifth each: up to nine times the default, or down to a ninth
_GROWTH = 1.2


@dataclass(frozen=True, slots=True)
class Learnt:
    """What was learnt for one detector.

    Attributes:
        knobs: changed knobs; empty where none had to change, or none helps.
        before, after: healthy runs with an alarm (warning or higher), with the old and new knobs.
        expected: alarms on runs that were left out when learning.
        judged: runs on which the detector could judge.
    """

    detector: str
    knobs: Mapping[str, float]
    before: int
    after: int
    expected: int
    judged: int


def calibrate(runs: Sequence[Run], config: Config | None = None) -> list[Learnt]:
    """Learn knobs for every detector that raises an alarm on these healthy runs."""
    config = config or Config()
    contexts = [Context(run) for run in runs]
    detectors = catalog.load(config.detector_folders)
    every = (
        _learn(detector, config.knobs.get(detector_id, {}), contexts)
        for detector_id, detector in detectors.items()
        if (not config.select or detector_id in config.select) and detector_id not in config.ignore
    )
    return [learnt for learnt in every if learnt is not None]


def _learn(
    detector: type[Detector], given: Mapping[str, float], contexts: Sequence[Context]
) -> Learnt | None:
    able = [context for context in contexts if not missing_needs(detector, context)]
    before = _alarms(detector, given, able)
    if not before:
        return None
    knobs = _quiet(detector, given, able)
    expected = sum(
        _alarms(detector, {**given, **_quiet(detector, given, _without(able, left))}, [able[left]])
        for left in range(len(able))
    )
    after = _alarms(detector, {**given, **knobs}, able)
    return Learnt(detector.id, knobs, before, after, expected, len(able))


def _without(contexts: Sequence[Context], left: int) -> list[Context]:
    return [context for index, context in enumerate(contexts) if index != left]


def _quiet(
    detector: type[Detector], given: Mapping[str, float], contexts: Sequence[Context]
) -> dict[str, float]:
    """The smallest change of one knob that is quiet on all runs; {} if none is, or none needed."""
    if not _alarms(detector, given, contexts):
        return {}
    for change in _changes(detector, given):
        if not _alarms(detector, {**given, **change}, contexts):
            return change
    return {}


def _changes(detector: type[Detector], given: Mapping[str, float]) -> Iterator[dict[str, float]]:
    """Settings of one knob each, nearest to the present ones first."""
    for step in range(1, _STEPS + 1):
        for knob in detector.knobs():
            now = given.get(knob.name, knob.default)
            for factor in (_GROWTH**step, _GROWTH**-step):
                value = round(now * factor) if knob.whole else _rounded(now * factor)
                if _allowed(knob, value) and value != now:
                    yield {knob.name: value}


def _allowed(knob: Knob, value: float) -> bool:
    return knob.minimum <= value <= knob.maximum


def _rounded(value: float) -> float:
    """Three significant digits: a knob is set by people."""
    if value == 0 or not math.isfinite(value):
        return value
    return round(value, 2 - math.floor(math.log10(abs(value))))


def _alarms(
    detector: type[Detector], knobs: Mapping[str, float], contexts: Sequence[Context]
) -> int:
    return sum(_alarm(detector(**knobs), context) for context in contexts)


def _alarm(detector: Detector, context: Context) -> bool:
    try:
        for finding in detector.scan(context):
            if finding.severity >= Severity.WARNING:
                return True
    except Inconclusive:
        return False
    return False
