"""Out of sample: python -m benchmarks.accuracy.left_out FOLDER [--all].

The numbers of a rule that were chosen with a log at hand say little about the next log. Here, each
source of labelled logs (a repository, the author of a report, a lab) is left out in turn; every
detector's knobs are chosen again on all other sources, and judged on the one left out. The
difference to what the knobs reach when they are chosen on all sources is what was fitted.

Choosing is what `rlprobe calibrate` does, for faults too: one knob of one detector at a time, by a
factor of the grid; a change is kept where it finds more faults than it raises false alarms, which
count `COST` times. A run is read once, and a detector is run once per setting.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.accuracy.labels import Case, classes, load, loud
from rlprobe import catalog
from rlprobe.detector import Detector, Knob
from rlprobe.errors import Inconclusive
from rlprobe.findings import Finding
from rlprobe.scan.context import Context
from rlprobe.scan.engine import missing_needs
from rlprobe.values import BoolArray

GRID = (0.5, 0.7, 1.4, 2.0)  # times the default
COST = 2  # a false alarm weighs as much as so many faults missed

Setting = tuple[tuple[str, float], ...]  # knobs that are not at their default
DEFAULT: Setting = ()


@dataclass(frozen=True)
class Outcome:
    """What one setting of one detector makes of each case: shape (cases,)."""

    found: BoolArray
    alarm: BoolArray


Table = Mapping[str, Mapping[Setting, Outcome]]
Choice = dict[str, Setting]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.left_out")
    parser.add_argument("folder", type=Path, help="with cases.json")
    parser.add_argument("--all", action="store_true", help="also cases that people argue about")
    given = parser.parse_args()
    began = time.monotonic()
    cases = [case for case in load(given.folder) if case.clear or given.all]
    print(report(cases, outcomes(cases)))
    print(f"\n{confidences(cases)}")
    print(f"\n{time.monotonic() - began:.0f} s")


# --- what each setting gives ----------------------------------------------------------------------


def outcomes(cases: Sequence[Case]) -> Table:
    """Every detector with its knobs as they are, and with one of them changed."""
    return {
        name: {setting: _outcome(detector, setting, cases) for setting in settings(detector)}
        for name, detector in catalog.load().items()
    }


def settings(detector: type[Detector]) -> Iterator[Setting]:
    """The default, then one knob at a time, by each factor of the grid."""
    yield DEFAULT
    for knob in detector.knobs():
        changed = {_scaled(knob, factor) for factor in GRID} - {knob.default}
        for value in sorted(changed):
            yield ((knob.name, value),)


def _scaled(knob: Knob, factor: float) -> float:
    value = min(max(knob.default * factor, knob.minimum), knob.maximum)
    return round(value) if knob.whole else value


def _outcome(detector: type[Detector], setting: Setting, cases: Sequence[Case]) -> Outcome:
    judge = detector(**dict(setting))
    found, alarm = np.zeros((2, len(cases)), dtype=np.bool_)
    for row, case in enumerate(cases):
        if missing_needs(detector, case.context):
            continue
        findings = loud(_findings(judge, case.context))
        found[row] = not case.healthy and case.found(findings)
        alarm[row] = case.healthy and bool(findings)
    return Outcome(found, alarm)


def _findings(detector: Detector, context: Context) -> list[Finding]:
    findings: list[Finding] = []
    try:
        findings.extend(detector.scan(context))
    except Inconclusive:
        pass
    except Exception as error:
        print(f"{detector.id} failed: {error!r}")
    return findings


# --- choosing -------------------------------------------------------------------------------------


def chosen(table: Table, rows: BoolArray) -> Choice:
    """For each detector in turn the setting with the best result on these cases.

    The default is kept unless another is better, and the nearest of equals is taken.
    """
    choice: Choice = dict.fromkeys(table, DEFAULT)
    for name, results in table.items():
        others = {other: setting for other, setting in choice.items() if other != name}
        found, alarm = _together(table, others)
        scores = {
            setting: _score(found | own.found, alarm | own.alarm, rows)
            for setting, own in results.items()
        }
        best = max(scores.values())
        if best > scores[DEFAULT]:
            choice[name] = next(setting for setting, score in scores.items() if score == best)
    return choice


def _together(table: Table, choice: Choice) -> tuple[BoolArray, BoolArray]:
    """Cases found, and cases alarmed, by any detector."""
    own = [table[name][setting] for name, setting in choice.items()]
    found: BoolArray = np.logical_or.reduce([item.found for item in own])
    alarm: BoolArray = np.logical_or.reduce([item.alarm for item in own])
    return found, alarm


def _score(found: BoolArray, alarm: BoolArray, rows: BoolArray) -> int:
    return int(found[rows].sum()) - COST * int(alarm[rows].sum())


# --- the report -----------------------------------------------------------------------------------


def report(cases: Sequence[Case], table: Table) -> str:
    """In sample with the knobs as they are, and as chosen on all; then each source left out."""
    sources = np.array([case.source for case in cases])
    every = np.ones(len(cases), dtype=np.bool_)
    now = _together(table, dict.fromkeys(table, DEFAULT))
    fitted = chosen(table, every)
    out = np.zeros((2, len(cases)), dtype=np.bool_)
    lines: list[str] = []
    for source in sorted(set(sources)):
        held = sources == source
        choice = chosen(table, ~held)
        result = _together(table, choice)
        out[:, held] = [part[held] for part in result]
        lines += _told(source, cases, held, out, now, choice)
    rows = {
        "knobs as they are": now,
        "chosen on all sources (in sample)": _together(table, fitted),
        "chosen on all other sources (out of sample)": (out[0], out[1]),
    }
    head = ["| knobs | faults found in time | healthy logs alarmed |", "|---|---|---|"]
    head += [f"| {name} | {_figures(cases, *result)} |" for name, result in rows.items()]
    return "\n".join(
        [
            f"{len(cases)} cases of {len(set(sources))} sources",
            "",
            *head,
            "",
            f"Chosen on all sources: {_described(fitted)}",
            "",
            *lines,
        ]
    )


def _figures(cases: Sequence[Case], found: BoolArray, alarm: BoolArray) -> str:
    healthy = np.array([case.healthy for case in cases])
    return f"{found[~healthy].sum()}/{(~healthy).sum()} | {alarm[healthy].sum()}/{healthy.sum()}"


def _told(
    source: str,
    cases: Sequence[Case],
    held: BoolArray,
    out: BoolArray,
    now: tuple[BoolArray, BoolArray],
    choice: Choice,
) -> Iterator[str]:
    """What is missed or falsely alarmed in the source left out."""
    for row in map(int, np.flatnonzero(held)):
        case = cases[row]
        wrong = out[1][row] if case.healthy else not out[0][row]
        if wrong:
            before = now[1][row] if case.healthy else not now[0][row]
            what = "alarmed" if case.healthy else "missed"
            also = ", as with the knobs as they are" if before else f" with {_described(choice)}"
            yield f"- {source}: {case.name} {what}{also}"


def _described(choice: Choice) -> str:
    changed = [
        f"{name}.{knob} = {value:.3g}"
        for name, setting in choice.items()
        for knob, value in setting
    ]
    return ", ".join(changed) or "no knob changed"


def confidences(cases: Sequence[Case]) -> str:
    """How many findings (warning or higher) on faulty logs have an expected name, by confidence."""
    right, every = Counter[float](), Counter[float]()
    for case in cases:
        for detector in catalog.load().values():
            if case.healthy or missing_needs(detector, case.context):
                continue
            for finding in loud(_findings(detector(), case.context)):
                level = round(finding.confidence, 1)
                every[level] += 1
                right[level] += bool(classes(finding) & case.expect)
    lines = [f"| {level:.1f} | {right[level]}/{every[level]} |" for level in sorted(every)]
    return "\n".join(["| confidence | expected names |", "|---|---|", *lines])


if __name__ == "__main__":
    main()
