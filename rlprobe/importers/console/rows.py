"""Segments of console output -> rows: what belongs together, what is said twice, at which step."""

from __future__ import annotations

import json
import math
import re

import numpy as np

from rlprobe.importers.console import line as console_line
from rlprobe.importers.console.blocks import Blocks
from rlprobe.importers.console.pairs import ANSI, plain_pairs
from rlprobe.importers.console.steps import BAR, Bar, bar_of, steps_from
from rlprobe.importers.console.table import Tables
from rlprobe.importers.importer import Reading
from rlprobe.importers.numbers import spelled
from rlprobe.importers.rows import RowTable
from rlprobe.importers.source import Source

Row = dict[str, float]

_LONGEST_DICT = 65_536
_MOST_STEPS = 10_000  # of which it is remembered which rank told them
_UNSTEPPED, _AS_BEFORE = -1, -2  # counted in the end; at the step of the row before
_RAY = re.compile(r"^\s*\([\w.:]+(?: pid=\d+)?(?:, ip=[\d.]+)?\)\s?")
_RANK = re.compile(r"^\s*\[(?:rank|default)(\d+)\]:?\s?")
_OPENS = re.compile(r"\{\s*(?:['\"]|$)")
_OVERFLOW = re.compile(
    r"OVERFLOW!.*?Skipping step.*?[Rr]educing to ([\d.e+]+)"
    r"|Overflow detected\. Skipping step.*?reducing to ([\d.e+]+)"
)
_NOT_FINITE = re.compile(
    r"grad_norm is not finite: ([-+]?\w+)|Bad grad_norm detected \(grad_norm=([-+]?\w+)\)"
)
_DEEPSPEED = re.compile(r"\bstep=(\d+), skipped=(\d+), lr=\[([-+.\deE]+)")
_CONTEXT = re.compile(
    r"(?:^|\W)(?:global[ _])?step:?\s+(\d+)\s*\]?\s*:?\s*$|\[Global Step: (\d+)\]", re.I
)
_EVALUATING = re.compile(r"\*{3,} ?Evaluating\b", re.IGNORECASE)
_BETTER = re.compile(r"\s?\((?:higher|lower) is better\)\s?")
_PACE = re.compile(r"time|second|/s|tps|flops|mfu|memory|throughput|eta", re.IGNORECASE)
_EVALUATION = ("eval_", "eval/", "test_", "val/", "validation/")


class Rows:
    """Collects the rows of one console log."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.rows = RowTable()
        self.steps: list[int] = []
        self.bars: list[Bar | None] = []  # one per row without a step
        self.tables = Tables()
        self.bar: Bar | None = None
        self.rank: int | None = None
        self.told_by: dict[int, int] = {}
        self.open: list[str] = []
        self.open_size = 0
        self.context: int | None = None
        self.waiting: Row | None = None  # the last row without a step: the next may repeat it
        self.last: Row = {}
        self.warned: Row = {}  # what warnings told since the last row
        self.overflows: list[Row] = []  # told before any row: all there is, perhaps
        self.overflowed = False
        self.measured = 0  # rows that are no evaluation
        self.evaluating = 0  # lines below which an evaluation may still be told
        self.blocks = Blocks()

    def feed(self, segment: str) -> None:
        """One line, or what stands between carriage returns."""
        text = ANSI.sub("", segment) if "\x1b" in segment else segment
        if text.lstrip().startswith(("(", "[")):
            text = self._rank(_RAY.sub("", text))
        if text.startswith('{"log":'):
            text = _output_in(text)
        if self.open and self._continue(text):
            return
        self._line(text)

    def _rank(self, text: str) -> str:
        match = _RANK.match(text)
        self.rank = int(match[1]) if match else None
        return text[match.end() :] if match else text

    def _line(self, text: str) -> None:
        text = self._bars(text)
        if self._warning(text):
            return
        if "{" in text:
            self._dicts(text)
            return
        if self._deepspeed(text):
            return
        row = console_line.parse(text)
        if row is not None:
            self._found(row)
            return
        for table_row in self.tables.feed(text):
            if console_line.measures(table_row):
                self._found(table_row)
        if not self.tables.taken:
            self._evaluation(text)
            self._other(text)

    def _bars(self, text: str) -> str:
        """Take note of progress bars, and take them out of the text."""
        if "%|" not in text:
            return text
        parts: list[str] = []
        position = 0
        for match in BAR.finditer(text):
            bar = bar_of(match)
            desc, tail = match["desc"], match["unit"].partition(",")[2]
            start = match.start()
            if "]" in desc or "]:" in text[max(0, start - 3) : start]:
                desc = ""
            parts.append(text[position:start])
            position = match.end()
            before = text[max(0, start - 2000) : match.start() + len(match["desc"])]
            if bar is None and ("/s" not in match["unit"] and "s/" not in match["unit"]):
                continue
            self._in_bar(Bar(int(match["at"]), int(match["of"])), before, tail, bar)
            self.bar = bar or self.bar
        parts.append(text[position:])
        return " ".join(part for part in parts if part.strip())

    def _in_bar(self, at: Bar, before: str, tail: str, bar: Bar | None) -> None:
        """Metrics that a progress bar carries: before it, or behind its speed."""
        inside = before.rpartition("[")[2] if "|" in before else ""
        for text in (tail, inside.partition("]")[0].rstrip(": ")):
            if "=" not in text and ":" not in text:
                continue
            row = dict(plain_pairs(text)[0])
            if row and console_line.measures(row):
                self._explicit(at.at, row)

    def _continue(self, text: str) -> bool:
        """Add to a dict that an earlier line opened; False once it turns out to be none."""
        if _OPENS.search(text):
            self.open, self.open_size = [], 0
            return False
        self.open.append(text)
        self.open_size += len(text)
        if "}" not in text and self.open_size <= _LONGEST_DICT:
            return True
        lines, self.open, self.open_size = self.open, [], 0
        told = len(self.steps), self.waiting
        self._dicts("".join(lines), whole=True)
        if told == (len(self.steps), self.waiting):
            for line in lines[1:]:  # it was no row: then these are lines of their own
                self._line(line)
        return True

    def _dicts(self, text: str, *, whole: bool = False) -> None:
        end = text.rfind("}")
        if end < text.rfind("{") and not whole and _OPENS.search(text[text.rfind("{") :]):
            start = text.rfind("{")
            self.open, self.open_size = [text[start:]], len(text) - start
            told = console_line.step_in(text[:start])
            self.context = int(told[0]) if told else self.context
            text = text[:start]
        single = console_line.parse(text)
        if single is not None:
            self._found(single)
            return
        for part in console_line.dicts_in(text):
            row = console_line.dictionary(part)
            if row and console_line.measures(row):
                self._found(row)

    def _warning(self, text: str) -> bool:
        """What a framework says about a step that it skipped."""
        if "verflow" in text or "OVERFLOW" in text:
            match = _OVERFLOW.search(text)
            if match:
                self._warn({"loss_scale": float(match[1] or match[2]), "update_skipped": 1.0})
                return True
        if "grad_norm" in text:
            match = _NOT_FINITE.search(text)
            value = spelled(match[1] or match[2]) if match else None
            if value is not None:
                self.warned["grad_norm"] = value
                return True
        return False

    def _warn(self, told: Row) -> None:
        self._flush()
        self.overflowed = True
        if self.bar is not None:
            self._explicit(self.bar.at, told)
        else:
            self.warned |= told
            if not self.measured:
                self.overflows.append(told)

    def _deepspeed(self, text: str) -> bool:
        match = _DEEPSPEED.search(text) if "skipped=" in text else None
        if match:
            row = {"lr": float(match[3]), "skipped": float(match[2])}
            self._explicit(int(match[1]), row)
        return match is not None

    def _found(self, row: Row) -> None:
        if "step" in row:
            step = console_line.step_of(row)
            row = {key: value for key, value in row.items() if key != "step"}
            if step is not None and row:
                self._explicit(step, row)
        elif "train_runtime" not in row:
            self._implicit(row)

    def _explicit(self, step: int, row: Row) -> None:
        self._flush()
        if self.steps and self.steps[-1] == step and _repeats(self.last, row):
            return
        if self.rank is not None and self.rank != self.told_by.setdefault(step, self.rank):
            return  # another rank has told this step
        if len(self.told_by) > _MOST_STEPS:
            self.told_by.clear()
        self.last = row
        self.steps.append(step)
        self.rows.add(step, {**self._warned(row), **row})
        self.context = None

    def _warned(self, row: Row) -> Row:
        warned = {key: value for key, value in self.warned.items() if key not in row}
        self.warned = {}
        self.measured += 1
        # Where overflows are told, a row without one had none.
        return {"update_skipped": 0.0, **warned} if self.overflowed else warned

    def _implicit(self, row: Row) -> None:
        if self.context is not None:
            self._explicit(self.context, row)
            return
        if all(key.startswith(_EVALUATION) or key == "epoch" for key in row):
            self._flush()
            self.rows.add(0, row)
            self.steps.append(_AS_BEFORE)
            return
        if self.waiting is not None and not _is_shorter(self.waiting, row):
            self._flush()
        self.waiting = row
        self.waiting_bar = self.bar

    def _flush(self) -> None:
        if self.waiting is None:
            return
        row, self.waiting = self.waiting, None
        if row == self.last and len(row) > 3:
            return
        self.last = row
        self.steps.append(_UNSTEPPED)
        self.bars.append(self.waiting_bar)
        self.rows.add(0, {**self._warned(row), **row})

    def _other(self, text: str) -> None:
        """A line that is no row: a heading, a label under one, a step for the next dict."""
        match = _CONTEXT.search(text) if "tep" in text else None
        if match:
            self.context = int(match[1] or match[2])
        if not self.measured:
            coarse = console_line.parse_coarse(text)
            if coarse is not None:
                self.blocks.coarse(int(coarse.pop("step")), coarse)
            self.blocks.feed(text)

    def _evaluation(self, text: str) -> None:
        """The line under `***** Evaluating …`: numbers of held-out data."""
        if self.evaluating and text.strip():
            self.evaluating -= 1
            row = {f"eval/{key}": v for key, v in plain_pairs(_BETTER.sub("", text))[0]}
            if row:
                self._flush()
                self.rows.add(0, row)
                self.steps.append(_AS_BEFORE)
                self.evaluating = 0
        if "valuat" in text and _EVALUATING.search(text):
            self.evaluating = 3

    def reading(self) -> Reading:
        """Everything as one reading."""
        self._flush()
        note = "" if self.measured else self._fall_back()
        if self.measured and self.warned and self.context is not None:
            self.rows.add(self.context, self.warned)
            self.steps.append(self.context)
        steps, notes = _settled(self.steps, self.bars)
        self.rows.set_steps(np.array(steps, dtype=np.int64))
        return Reading(self.rows, notes=[*notes, note] if note else notes)

    def _fall_back(self) -> str:
        """No row of metrics at all: blocks under headings, or the warnings alone."""
        warned, self.warned = self.warned, {}
        if warned and self.context is not None:
            self._explicit(self.context, warned)
            return ""
        for row in self.overflows:
            self._implicit(row)
            self._flush()
        if self.overflows:
            return ""
        rows, note = self.blocks.rows()
        for step, row in rows:
            self._explicit(step, row)
        return note if rows else ""


def _output_in(text: str) -> str:
    """The line of output inside a line of a container's log (Docker's JSON files)."""
    try:
        line = json.loads(text).get("log")
    except (ValueError, RecursionError, AttributeError):
        return text
    return ANSI.sub("", line).strip() if isinstance(line, str) else text


def _settled(told: list[int], bars: list[Bar | None]) -> tuple[list[int], list[str]]:
    """A step for every row: those that tell none get one, evaluations that of the row before."""
    if not bars:
        return [max(step, 0) for step in _carried(told)], []
    found, note = steps_from(bars)
    if any(step >= 0 for step in told):
        known = [None if bar is None else bar.at for bar in bars]
        found = [at if at is not None else _AS_BEFORE for at in known]
        note = "rows without a step: that of the progress bar, or of the row before"
    source = iter(found)
    return _carried([next(source) if step == _UNSTEPPED else step for step in told]), [note]


def _carried(steps: list[int]) -> list[int]:
    carried, last = [], 0
    for step in steps:
        last = step if step >= 0 else last
        carried.append(last)
    return carried


def _repeats(last: Row, row: Row) -> bool:
    """Whether a row says again what the last one said; ranks differ in nothing but their pace."""
    if set(last) != set(row):
        return False
    return all(_same(last[key], value) for key, value in row.items() if not _PACE.search(key))


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _is_shorter(first: Row, row: Row) -> bool:
    """Whether the first row is the second with fewer keys and fewer digits (LLaMA-Factory)."""
    if not set(first) < set(row) or len(first) < 2:
        return False
    return all(_close(first[key], row[key]) for key in first)


def _close(a: float, b: float) -> bool:
    return _same(a, b) or abs(a - b) <= 1e-3 * max(abs(a), abs(b)) + 5e-5
