"""One JSON object per line."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlprobe.errors import EmptyRunError
from rlprobe.importers import evaluations, long_form, steps
from rlprobe.importers.documents import json_blocks, json_runs
from rlprobe.importers.importer import Complaints, Importer, Reading
from rlprobe.importers.numbers import number
from rlprobe.importers.rows import RowTable
from rlprobe.importers.source import HEAD_BYTES, LONGEST_LINE, Source
from rlprobe.importers.stepless import SteplessRows
from rlprobe.importers.unread import UnreadCount
from rlprobe.values import IntArray

_SUFFIXES = frozenset({".jsonl", ".ndjson"})
_WRAPPERS = ("data", "metrics", "logs", "values", "scalars")
_SETTINGS = ("config", "hparams", "hyperparameters")  # objects that hold no metrics
_TEXT_KEYS = frozenset({"prompt", "completion", "input", "output", "response", "messages"})
_PEEK_ROWS = 200
_LONG_ROWS = 8  # rows to look at where one does not fit into the head of a file


class JSONLines(Importer):
    """JSON Lines: one object per logged step, with a step key.

    The dialects differ in little. The step is the key that counts updates best and that most rows
    have: `step`, `training_step`, `train/global_step`, `global_step`, `current_steps`
    (LLaMA-Factory), `global_step/max_steps` as `"12/500"` (ms-swift), `training_iteration` (RLlib's
    `result.json`), `progress/batch` (tinker), …; `--step-key` chooses another one, and all are kept
    as columns. verl's file logger writes `{"step": 12, "data": {…}}` and a null there was NaN or
    infinite; elsewhere a null is not logged. Nested objects become keys with a slash; a wrapper
    such as `metrics` or `data` is taken off, and `config` is no metric. Several rows of one step
    (prime-rl) become one; so do rows of one value each that name its metric
    (`{"metric": "loss", "value": 0.5}`). A row that says of itself that it is one of an evaluation
    (`"mode": "val"`) has its metrics below `eval/`; if it counts its own batches, it belongs to the
    step before. Rows that say which rank they are of (`rank`, `local_rank`, `process_index`, …),
    the same steps once for each, are the ranks of one run.

    A torn last line or a bad row costs that row, and is reported with its line number. Rows without
    any step are numbered, and the notes say so; where the others have one, a kind of row that comes
    again and again (the load of the machine) belongs to the step before it, and others are left
    out: they are events and summaries.

    Source: verl/utils/tracking.py (FileLogger), prime_rl/monitors/file.py,
    tinker_cookbook/utils/ml_log.py, swift/trainers, mmcv/runner/hooks/logger/text.py,
    llamafactory/train/callbacks.py, stable_baselines3/common/logger.py (JSONOutputFormat),
    ray/tune/logger/json.py.
    """

    name = "jsonl"
    description = "JSON Lines: one object per logged step"
    priority = 60

    def recognises(self, source: Source) -> bool:
        """The first line is a whole JSON object, or the name says JSON Lines."""
        first, _, rest = _head(source).lstrip().partition(b"\n")
        named = source.suffix in _SUFFIXES
        if not first.startswith(b"{"):
            return named and source.is_text
        row, problem = _row(first)
        if not problem and (_is_rollout(row) or _is_container_output(row)):
            return False
        # Alone and without a step it may be a document of another shape.
        alone = not rest.strip() and steps.choose([_unwrapped(row)]) is None
        return named or not (problem or alone)

    def read(self, source: Source) -> list[Reading]:
        """The run in the file."""
        rows = _peek(_head(source))
        verl = bool(rows) and all(
            set(row) == {"step", "data"} and isinstance(row["data"], dict | None) for row in rows
        )
        plain = [_unwrapped(row) for row in rows]
        key = steps.asked_or_best(plain, source.step_key)
        reader = _Reader(source, key, long_form.run_key(plain, key), verl=verl)
        for block in source.blocks():
            reader.read(block)
        return reader.readings()


def _head(source: Source) -> bytes:
    """The first lines: as many as the head has, and where it cuts the first one, some whole."""
    if len(source.head) < HEAD_BYTES or b"\n" in source.head or source.head[:1] != b"{":
        return source.head
    return b"\n".join(itertools.islice(source.lines(), _LONG_ROWS))


def _peek(head: bytes) -> list[dict[str, Any]]:
    """The first rows that hold a number; to see which dialect this is."""
    parsed = map(_row, head.splitlines()[:_PEEK_ROWS])
    return [
        row
        for row, problem in parsed
        if not problem and any(isinstance(v, int | float | str | dict) for v in row.values())
    ]


def _is_rollout(row: Mapping[str, Any]) -> bool:
    """Whether a row is one completion with its prompt, and no row of metrics."""
    return len({key for key in _TEXT_KEYS & set(row) if isinstance(row[key], str | list)}) > 1


def _is_container_output(row: Mapping[str, Any]) -> bool:
    """Whether a row is a line of a container's output (Docker): then it is a console log."""
    return isinstance(row.get("log"), str) and "stream" in row


def _row(line: bytes) -> tuple[dict[str, Any], str]:
    try:
        row = json.loads(line)
    except UnicodeDecodeError:
        return _row(line.decode("utf-8", "replace").encode())
    except (ValueError, RecursionError) as error:
        return {}, f"not JSON ({error})" if len(line) < LONGEST_LINE else "longer than any row"
    return (row, "") if isinstance(row, dict) else ({}, "not an object")


def _unwrapped(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what wraps its metrics, and without settings."""
    for key in _SETTINGS:
        if isinstance(row.get(key), dict):
            row = {name: value for name, value in row.items() if name != key}
    for wrapper in _WRAPPERS:
        inner = row.get(wrapper)
        if isinstance(inner, dict):
            return {**{key: value for key, value in row.items() if key != wrapper}, **inner}
    return dict(long_form.spread(row))


def _lines(block: bytes) -> list[bytes]:
    return block.removesuffix(b"\n").split(b"\n")


class _Reader:
    def __init__(
        self, source: Source, step_key: str | None, run_key: str | None, *, verl: bool
    ) -> None:
        self.source, self.step_key = source, step_key
        self.run_key = run_key
        self.others: dict[str, RowTable] = {}  # rows of runs, where rows name theirs
        self.rows = RowTable("nan" if verl else "missing")
        self.blocks = json_blocks.BlockReader(null_is_nan=verl)
        self.complaints = Complaints(source)
        self.bad = UnreadCount("row")
        self.stepless = SteplessRows()
        self.line = 0
        self.numbered = 0
        self.reached = 0  # the step of the last row of training

    def read(self, block: bytes) -> None:
        by_row = self.run_key is not None
        if len(block) < json_blocks.WORTHWHILE_BYTES or by_row or not self._fast(block):
            self._slow(_lines(block))

    def _fast(self, block: bytes) -> bool:
        rows = self.blocks.read(block)
        rows = rows and rows.unwrapped(_WRAPPERS, _SETTINGS)
        names = set() if rows is None else {*rows.columns, *rows.texts}
        if rows is None or "train_runtime" in names or long_form.keys_of(names) is not None:
            return False
        if not json_runs.of_training(rows):
            return False
        columns = rows.columns
        if self.step_key is None:
            self._take(np.arange(self.numbered + 1, self.numbered + 1 + rows.size), columns)
            self.numbered += rows.size
            return True
        own = rows.steps(self.step_key)
        if own is None:
            return False
        lines = () if own[1].all() else _lines(block)
        for start, stop, stepped in json_runs.runs(own[1]):
            if stepped:
                part = json_runs.part(columns, start, stop)
                self._take(own[0][start:stop], part)
                self.stepless.passed(int(own[0][stop - 1]), part)
            else:
                self._slow(lines[start:stop])
        return True

    def _take(self, numbers: IntArray, columns: json_runs.Columns) -> None:
        self.line += len(numbers)
        self.rows.add_columns(numbers, columns)

    def _slow(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            self.line += 1
            if not line.strip():
                continue
            row, problem = _row(line[:LONGEST_LINE])
            if problem:
                self.complaints.add(self.line, problem)
                self.bad.add(self.line, line[:400].decode("utf-8", "replace"))
            elif "train_runtime" not in row:  # the summary of a whole run is no step of it
                self._add(_unwrapped(row))

    def _add(self, row: dict[str, Any]) -> None:
        evaluation = evaluations.is_evaluation(row)
        metrics = evaluations.marked(row) if evaluation else row
        if self.step_key is None:
            self.numbered += 1
            self.rows.add(self.numbered, metrics)
            return
        step = steps.step_number(row.get(self.step_key))
        run = row.get(self.run_key) if self.run_key is not None else None
        if step is not None and isinstance(run, str):
            self.others.setdefault(run, RowTable()).add(step, metrics)
        elif step is not None:
            if not evaluation:
                self.reached = step
            elif step < self.reached:  # it counts its own batches (mmdetection)
                step = self.reached
            self.rows.add(step, metrics)
            self.stepless.passed(step, metrics)
        elif steps.miscounts(row.get(self.step_key)):
            self.bad.add(self.line, json.dumps(row, default=str)[:400])
        elif any(number(value) is not None for value in row.values()):
            for at, waiting in self.stepless.take(metrics, certain=evaluation):
                self.rows.add(at, waiting)

    def readings(self) -> list[Reading]:
        """The runs that were read; EmptyRunError if there are none."""
        others = [
            Reading(rows, run=run, step_key=self.step_key, unread=rows.odd.unread(len(rows)))
            for run, rows in self.others.items()
        ]
        if others and self.rows.empty:
            others[0].problems = self.complaints.all()
            others[0].unread = [*others[0].unread, *self.bad.unread(len(others[0].rows))]
            return others
        return [self._main(), *others]

    def _main(self) -> Reading:
        if self.rows.empty:
            raise EmptyRunError(
                f"Couldn't find metrics in '{self.source.path}': no line holds a row"
            )
        notes = []
        if self.step_key is None:
            notes = ["steps not logged: numbered by row"]
        elif left := self.stepless.left:
            notes = [f"{left:,} rows without `{self.step_key}` left out"]
        if self.stepless.placed:
            notes.append(f"{self.stepless.placed:,} rows without a step: at the step before")
        unread = [*self.bad.unread(len(self.rows)), *self.rows.odd.unread(len(self.rows))]
        return Reading(
            self.rows,
            step_key=self.step_key,
            notes=notes,
            problems=self.complaints.all(),
            unread=unread,
        )
