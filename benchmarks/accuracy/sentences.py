"""Whether what a finding says is true of the rows it names: its numbers computed again.

python -m benchmarks.accuracy.sentences PATH... scans logs and recordings, and what lies in folders,
and prints what does not hold. `untrue(finding, context)` yields that for one finding:

- a number in the summary is in the evidence, or follows from one piece of it (a ratio, a
  difference, a percentage, the token probability of a loss), up to the rounding that
  `rlprobe.numbers` prints with; or it is a step, a rank, a launch, a number of rows of the episode,
  or stands in the message of an event;
- evidence with a metric and a step is the value logged there, or the mean over ranks;
- an extreme ("highest", "lowest") is that of the episode, a median lies among the episode's rows;
- the onset is a step of the log or of an event, and the step after "from step" is the onset;
- what "rose from A to B" has B above A, what "fell" has it below;
- what "stays there" has most of its rows nearer to where it went than to where it was.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlprobe.errors import RlprobeError
from rlprobe.findings import Evidence, Finding
from rlprobe.importers import open_runs
from rlprobe.scan.context import Context
from rlprobe.scan.engine import scan
from rlprobe.store.run import Run
from rlprobe.values import FloatArray, Series

_CLOSE = 1e-6  # relative: values travel through float32 in some logs
_NUMBER = re.compile(
    r"(?<![\w.])([+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?|nan|inf|-inf)"
    r"(?!\w|-[a-z])(\s?%|\s?[kMBT]\b|\s?[KMGT]iB)?"  # an 8-gram is no number
)
_UNITS = {"k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_BYTES = {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
_VALUE = r"([+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)"
_FROM_TO = re.compile(rf"\bfrom {_VALUE}(?: \S+)? to {_VALUE}")
_TO_FROM = re.compile(rf"\b(?:to|at|reached) {_VALUE}[^.;:\d]*?\b(?:from|against) {_VALUE}")
_UP = re.compile(r"\b(rose|rises|grew|climbed|jumped|exploded|went up|rising|increased)\b")
_DOWN = re.compile(r"\b(fell|falls|dropped|shrank|sank|collapsed|went down|falling|lost)\b")
_STAYED = re.compile(r"\b(stays?|stayed|remains?|remained) (there|at|above|below)\b")
_MOST = 0.75  # of the rows of what stays
_SINCE = re.compile(r"\bfrom step ([\d,]+) on\b")
_AT_STEP = re.compile(r"\b(?:at|in|after|before|since|from|to|until) step ([\d,]+)")
_NO_METRIC = ("event:", "samples")
_UNITS_OF_LOG = (1, 100)  # a share may have been logged in percent
_SOME = ("while", "since it", "rows after", "next rows", "rows below", "of the last")
_TOP, _LOW = ("highest", "largest", "longest"), ("lowest", "smallest")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.sentences")
    parser.add_argument("paths", type=Path, nargs="+")
    given = parser.parse_args()
    runs = findings = wrong = 0
    for path in (part for folder in given.paths for part in _files(folder)):
        for run in _runs(path):
            runs += 1
            for finding in scan(run).findings:
                findings += 1
                words = untrue_of(finding, run)
                wrong += bool(words)
                for word in words:
                    print(f"{path}: {finding.key}: {word}")
    print(f"{findings} findings on {runs} runs, {wrong} untrue")


def _files(path: Path) -> list[Path]:
    whole = path.is_file() or (path / "run.json").exists()
    return [path] if whole else sorted(path.iterdir())


def _runs(path: Path) -> list[Run]:
    try:
        return [run for run in open_runs(path) if len(run.steps) or run.events]
    except RlprobeError:
        return []


def untrue_of(finding: Finding, run: Run) -> list[str]:
    """What is said and does not hold, neither of the run as it is nor as its attempt left it."""
    now = list(untrue(finding, Context(run)))
    if not now or len(run.info.attempts) < 2:
        return now
    then = list(untrue(finding, Context(run, finding.attempt)))
    return min(now, then, key=len)


def untrue(finding: Finding, context: Context) -> Iterator[str]:
    """What is said and does not hold."""
    rows = _Rows(finding, context)
    yield from _steps_named(finding, context)
    yield from _directions(finding.summary)
    yield from _stayed(finding, rows)
    for item in finding.evidence:
        yield from _logged(item, rows)
        yield from _of_episode(item, rows)
    yield from _unfounded(finding, rows)


# --- the rows ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """The run, as far as a finding speaks of it."""

    finding: Finding
    context: Context

    def series(self, item: Evidence) -> Series | None:
        if item.rank is None:
            return self.context.series(item.metric)
        return self.context.rank_series(item.metric).get(item.rank)

    def inside(self, series: Series) -> FloatArray:
        """Values of the episode."""
        finding = self.finding
        first = np.searchsorted(series.steps, finding.first_bad_step, "left")
        last = np.searchsorted(series.steps, finding.last_bad_step, "right")
        values: FloatArray = series.values[first:last]
        return values

    def before(self, series: Series) -> FloatArray:
        """Values before the episode."""
        end = np.searchsorted(series.steps, self.finding.first_bad_step, "left")
        values: FloatArray = series.values[:end]
        return values

    def counts(self) -> set[int]:
        """Numbers of rows of the episode, and of the run, that a sentence may name."""
        finding, known = self.finding, set[int]()
        steps = [self.context.steps]
        named = [*finding.metrics, *(item.metric for item in finding.evidence)]
        steps += [s.steps for s in map(self.context.series, named) if s is not None]
        for own in steps:
            inside = (own >= finding.first_bad_step) & (own <= finding.last_bad_step)
            known |= {int(inside.sum()), len(own)}
        launches = {attempt.number for attempt in self.context.attempts}
        ranks = set(finding.ranks) | {len(finding.ranks), self.context.run.info.world_size}
        ranks.add(len(np.unique(self.context.run.ranks.rank)))
        lasted = finding.last_bad_step - finding.first_bad_step + 1
        return known | launches | ranks | {lasted, len(launches)}

    def said(self) -> str:
        """What events of the run say."""
        return " ".join(event.message for event in self.context.run.events)

    def of_ranks(self, metric: str) -> list[Series]:
        return list(self.context.rank_series(metric).values())

    def mean_of_ranks(self, item: Evidence) -> float:
        found = [own.values[own.steps == item.step] for own in self.of_ranks(item.metric)]
        return float(np.mean(np.concatenate(found))) if found else math.nan


def _named_steps(context: Context) -> set[int]:
    """Steps that a finding may name: of rows, ranks, rollouts, events and attempts."""
    run = context.run  # with what was abandoned
    known = {*context.steps.tolist(), *run.steps.step.tolist(), *run.ranks.step.tolist()}
    known |= {*context.sample_steps(), *run.sample_steps()}
    for event in context.run.events:
        told = (event.step, *event.data.values())
        known |= {value for value in told if isinstance(value, int)}
    for attempt in context.attempts:
        known |= {attempt.first_step or 0, attempt.last_step or 0}
    return known


# --- steps and directions ----------------------------------------------------------------------


def _steps_named(finding: Finding, context: Context) -> Iterator[str]:
    known = _named_steps(context)
    if finding.first_bad_step not in known:
        yield f"the onset, step {finding.first_bad_step}, is no step of the run"
    for step in map(_whole, _SINCE.findall(finding.summary)):
        named = f"step {finding.first_bad_step:,}" in finding.summary
        if step != finding.first_bad_step and not (named and step > finding.first_bad_step):
            yield f"'from step {step} on', but the onset is {finding.first_bad_step}"
    for step in map(_whole, _AT_STEP.findall(finding.summary)):
        if step not in known:
            yield f"'step {step}' is no step of the run"


def _whole(text: str) -> int:
    return int(text.strip(",").replace(",", ""))


def _directions(summary: str) -> Iterator[str]:
    for clause in re.split(r"[;:]\s|\.\s|, (?:and|while|but) ", summary):
        up, down = bool(_UP.search(clause)), bool(_DOWN.search(clause))
        if up == down:
            continue
        pairs = [(a, b) for a, b in _FROM_TO.findall(clause)]
        pairs += [(a, b) for b, a in _TO_FROM.findall(clause)]
        for before, after in pairs:
            change = _plain(after) - _plain(before)
            if (change < 0 and up) or (change > 0 and down):
                yield f"'{clause}': {before} to {after} is the other way"


def _plain(text: str) -> float:
    return float(text.strip(",").replace(",", ""))


# --- evidence ------------------------------------------------------------------------------------


def _logged(item: Evidence, rows: _Rows) -> Iterator[str]:
    """Evidence that names a step is what was logged there."""
    if item.step is None or item.metric.startswith(_NO_METRIC) or item.value == item.step:
        return
    if "mean over ranks" in item.note and _same(item.value, rows.mean_of_ranks(item)):
        return
    series = rows.series(item)
    if series is None:
        yield f"{_described(item)}: never logged"
        return
    row = int(np.searchsorted(series.steps, item.step))
    if row == len(series.steps) or series.steps[row] != item.step:
        yield f"{_described(item)}: not logged at that step"
    elif not any(_same(item.value * unit, float(series.values[row])) for unit in _UNITS_OF_LOG):
        yield f"{_described(item)}: logged was {series.values[row]:.6g}"


def _of_episode(item: Evidence, rows: _Rows) -> Iterator[str]:
    """An extreme or a median is one of the episode's rows."""
    series = rows.series(item) if not item.metric.startswith(_NO_METRIC) else None
    if series is None:
        return
    inside = rows.inside(series)
    inside = inside[np.isfinite(inside)]
    if not len(inside):
        return
    spans = [inside]
    if item.step is None:  # of the whole run, or of one of its ranks
        spans += [series.values, *(own.values for own in rows.of_ranks(item.metric))]
    if item.note.startswith(_TOP) and not any(_is_extreme(item.value, span, 1) for span in spans):
        yield f"{_described(item)}: the episode has {inside.max():.6g}"
    if item.note.startswith(_LOW) and not any(_is_extreme(item.value, span, -1) for span in spans):
        yield f"{_described(item)}: the episode has {inside.min():.6g}"
    if item.note.startswith("median") and item.step is None and "last" not in item.note:
        yield from _median(item, inside, rows.before(series))


def _stayed(finding: Finding, rows: _Rows) -> Iterator[str]:
    """Most rows of what stays are on the far side of the middle between before and since."""
    if not _STAYED.search(finding.summary):
        return
    for item in finding.evidence:
        series = rows.series(item) if item.metric in finding.metrics else None
        of_all = item.step is None and item.note.startswith("median")
        if series is None or not of_all or item.baseline is None:
            continue
        inside = rows.inside(series)
        middle = (item.value + item.baseline) / 2
        far = inside > middle if item.value > item.baseline else inside < middle
        far = (far | ~np.isfinite(inside))[int(np.argmax(far)) :]  # since it got there
        if len(far) and np.mean(far) < _MOST:
            yield f"'{finding.summary}': only {np.mean(far):.0%} of its rows are there"


def _is_extreme(value: float, span: FloatArray, sign: int) -> bool:
    """Whether a value is the highest (lowest) of some rows, or the farthest from 0."""
    if not math.isfinite(value):
        return True
    finite = span[np.isfinite(span)]
    extremes = sign * np.max(sign * finite), np.max(np.abs(finite))
    given = [value * unit for unit in _UNITS_OF_LOG] + [abs(value)]
    return any(math.isclose(one, most, rel_tol=1e-5) for one in given for most in extremes)


def _median(item: Evidence, inside: FloatArray, before: FloatArray) -> Iterator[str]:
    """A median of an episode's rows lies in their middle half; one before it, in that before it.

    The median of some of the rows (while something holds, of the rows after) lies among them.
    """
    some = any(word in item.note for word in _SOME)
    amid = inside.min() <= item.value <= inside.max() if some else False
    if not (amid or _middle(item.value, inside) or _middle(item.value, np.abs(inside))):
        low, high = np.quantile(inside, [0.25, 0.75])
        yield f"{_described(item)}: half of the episode lies in {low:.6g} to {high:.6g}"
    before = before[np.isfinite(before)]
    if item.baseline is None or "before" not in item.note or not len(before):
        return
    if some and min(before.min(), inside.min()) <= item.baseline <= max(before.max(), inside.max()):
        return
    parts = [before[-rows:] for rows in (1, 4, 8, 16, 32, 64, len(before))]
    if not any(_middle(item.baseline, part) or _middle(item.baseline, abs(part)) for part in parts):
        low, high = np.quantile(before, [0.25, 0.75])
        yield f"{_described(item)}: half of what came before lies in {low:.6g} to {high:.6g}"


def _middle(value: float, values: FloatArray) -> bool:
    low, high = np.quantile(values, [0.25, 0.75])
    slack = _CLOSE * max(abs(low), abs(high))
    return bool(low - slack <= value <= high + slack)


def _described(item: Evidence) -> str:
    at = "" if item.step is None else f" at step {item.step}"
    rank = "" if item.rank is None else f" of rank {item.rank}"
    against = "" if item.baseline is None else f" against {item.baseline:.6g}"
    return f"evidence {item.metric}{rank} {item.value:.6g}{against}{at} ({item.note})"


def _same(value: float, logged: float) -> bool:
    if math.isnan(value) or math.isnan(logged):
        return math.isnan(value) and math.isnan(logged)
    return math.isclose(value, logged, rel_tol=_CLOSE, abs_tol=1e-12)


# --- numbers in the summary ---------------------------------------------------------------------


def _unfounded(finding: Finding, rows: _Rows) -> Iterator[str]:
    """Numbers of the summary that neither the evidence nor the episode's rows give."""
    text = finding.summary
    for name in sorted({*finding.metrics, *(e.metric for e in finding.evidence)}, key=len)[::-1]:
        text = text.replace(name, " ")
    variant = (finding.variant or "kill -9").replace("_", " ")
    text = text.replace(variant, " ").replace("kill -9", " ")
    text = re.sub(r"(?<!\w)'[^']*'|`[^`]*`|\"[^\"]*\"", " ", text)
    counts = rows.counts() | _named_steps(rows.context)
    steps = [_whole(step) for step in _AT_STEP.findall(finding.summary)]
    counts |= {abs(one - other) for one in steps for other in steps}
    numbers, said = _derived(finding.evidence), rows.said()
    for match in _NUMBER.finditer(text):
        number, unit = match.group(1), (match.group(2) or "").strip()
        if number not in said and not _founded(number, unit, numbers, counts):
            yield f"'{match.group(0).strip()}' in '{finding.summary}' is not in the evidence"


def _derived(evidence: tuple[Evidence, ...]) -> list[float]:
    """The numbers of the evidence, and what follows from one piece of it."""
    numbers: list[float] = []
    for item in evidence:
        value, base = item.value, item.baseline
        numbers += [value, _probability(value), *([item.step] if item.step is not None else [])]
        numbers += [item.rank] if item.rank is not None else []
        numbers += [float(text) for text in re.findall(_VALUE, item.note) if "," not in text]
        if base is None:
            continue
        numbers += [base, value - base, _probability(base)]
        numbers += [value / base, value / base - 1] if base else []
        numbers += [base / value] if value else []
    return numbers


def _probability(loss: float) -> float:
    """The geometric mean of the token probability at a loss."""
    return math.exp(-loss) if 0 < loss < 700 else math.nan


def _founded(text: str, unit: str, numbers: list[float], counts: set[int]) -> bool:
    if not any(character.isdigit() for character in text):
        return any(f"{number}" == text for number in numbers if not math.isfinite(number))
    value = float(text.replace(",", ""))
    scale = 0.01 if unit == "%" else {**_UNITS, **_BYTES}.get(unit, 1.0)
    mantissa, _, exponent = text.replace(",", "").partition("e")
    digits = len(mantissa.partition(".")[2])
    half = 0.5 * 10.0 ** (int(exponent or 0) - digits) * scale
    if scale == 1 and value == int(value) and int(value) in counts:
        return True
    wanted = abs(value * scale)
    return any(
        abs(abs(number) - wanted) <= half * (1 + 1e-9) + _CLOSE * wanted
        for number in numbers
        if math.isfinite(number)
    )


if __name__ == "__main__":
    main()
