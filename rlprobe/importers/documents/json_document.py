"""A whole JSON document: a list of rows, or metrics with their values by step."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlprobe import schema
from rlprobe.errors import EmptyRunError
from rlprobe.importers import steps
from rlprobe.importers.importer import Complaints, CutDocumentError, Importer, Reading
from rlprobe.importers.numbers import number
from rlprobe.importers.source import Source

_VALUE_KEYS = ("values", "data", "value", "y")
_STEP_LISTS = schema.step_keys().formats["json_columns"]
_PAIRED = (_STEP_LISTS, _VALUE_KEYS)
_DEEPEST = 4
_FEWEST_ROWS = 2
_TRIPLE = 3

Rows = dict[int, dict[str, Any]]


class JSONDocument(Importer):
    """A JSON document that holds a run in one of the usual shapes.

    - a list of rows: `[{"step": 1, "loss": 0.5}, …]`, alone or under some key of an object (a bare
      `log_history`, an export of a tracker);
    - a metric with its values by step: `{"train/loss": {"1": 0.5, "2": 0.4}}` (NeMo-RL), also with
      the values one level down (`{"lm loss": {"start_step": 1, "values": {"1": 10.5}}}`, Megatron's
      golden files, where the text `"nan"` is padding and means not logged);
    - columns: `{"step": [1, 2], "loss": [0.5, 0.4]}`;
    - `[[time, step, value], …]`, what TensorBoard's page exports of one metric (as CSV, too): the
      metric is named by the file;
    - one row.

    A document that a crash has cut is read as text, row by row, up to the cut.

    Source: megatron tests/functional_tests (golden_values), nemo_rl tests (json_dump_tb_logs.py).
    """

    name = "json"
    description = "a JSON document: a list of rows, or metrics with their values by step"
    priority = 70

    def recognises(self, source: Source) -> bool:
        """The start of one JSON document that is not one object per line."""
        start = source.head.lstrip()
        return start.startswith((b"[", b"{")) and start[1:].lstrip()[:1] in b'"{[]}'

    def read(self, source: Source) -> list[Reading]:
        """The run in the document."""
        document = load(source)
        complaints = Complaints(source, "row")
        reading = (
            _points(document, source)
            or _listed(document, complaints)
            or _mapped(document)
            or _single(document)
        )
        if reading is None or not len(reading.rows):
            raise EmptyRunError(
                f"Couldn't find metrics in '{source.path}': the document has no rows with steps, "
                "and no metrics with values by step"
            )
        reading.problems = complaints.all()
        return [reading]


def load(source: Source) -> Any:
    """The whole document.

    Raises:
        InputError: it is too large, or no JSON.
    """
    content = source.whole()
    try:
        return json.loads(content)
    except UnicodeDecodeError:
        return _load_text(source, content.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise _broken(source, error) from error


def _load_text(source: Source, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _broken(source, error) from error


def _broken(source: Source, error: Exception) -> CutDocumentError:
    return CutDocumentError(
        f"Couldn't read '{source.path}' as JSON: {error}",
        hint="A file cut by a crash? Give the one in the newest checkpoint-N instead.",
    )


def _points(document: Any, source: Source) -> Reading | None:
    """A list of `[time, step, value]`: TensorBoard's export of one metric, named by its file."""
    if not isinstance(document, list) or not document:
        return None
    if not all(isinstance(item, list) and len(item) == _TRIPLE for item in document):
        return None
    reading = Reading()
    for _, at, value in document:
        step = steps.step_number(at)
        if step is not None:
            reading.rows.add(step, {tag_of(source): value})
    return reading


def tag_of(source: Source) -> str:
    """The metric that the name of an exported file tells: `run-a-tag-train_loss.json`."""
    return Path(source.name).stem.rpartition("tag-")[2] or source.name


def _listed(document: Any, complaints: Complaints) -> Reading | None:
    """The longest list of rows in the document."""
    longest = max(_lists(document, 0), key=len, default=None)
    if longest is None:
        return None
    rows = [row for row in longest if isinstance(row, dict)]
    key = steps.choose([row for row in rows if _measures(row)])
    reading = Reading()
    unstepped = 0
    for index, row in enumerate(longest):
        if not isinstance(row, dict):
            complaints.add(index, "not an object")
        elif "train_runtime" not in row:
            step = steps.step_number(row.get(key)) if key else index + 1
            if step is None:
                unstepped += 1
            else:
                reading.rows.add(step, row)
    if unstepped:
        complaints.say(f"{unstepped:,} rows without `{key}` left out")
    reading.notes = [] if key else ["steps not logged: numbered by row"]
    return reading


def _measures(row: Mapping[str, Any]) -> bool:
    return any(number(value) is not None for key, value in row.items() if key not in steps.COUNTERS)


def _lists(node: Any, depth: int) -> Iterator[list[Any]]:
    if isinstance(node, list):
        rows = [item for item in node if isinstance(item, dict) and _measures(item)]
        stepped = depth == 0 or steps.choose(rows) is not None
        if rows and stepped and len(rows) * 2 >= len(node):
            yield node
    elif isinstance(node, dict) and depth < _DEEPEST:
        for value in node.values():
            yield from _lists(value, depth + 1)


def _mapped(document: Any) -> Reading | None:
    """Metrics with their values by step, or columns of values."""
    if not isinstance(document, dict):
        return None
    metrics = dict(_by_step(document, "", 0))
    apart = _on_other_axes(metrics)
    rows: Rows = {}
    for name, values in metrics.items():
        for step, value in () if name in apart else values.items():
            rows.setdefault(step, {})[name] = value
    if not rows:
        return _columnar(document)
    reading = Reading()
    if apart:
        some = ", ".join(sorted(apart)[:2])
        reading.notes = [f"{len(apart):,} metrics on another step axis left out: {some}, …"]
    for step in sorted(rows):
        reading.rows.add(step, rows[step])
    return reading


def _on_other_axes(metrics: Mapping[str, Mapping[int, Any]]) -> set[str]:
    """Metrics most of whose steps are not those of the others: machine load by seconds, set-up."""
    axes = Counter(frozenset(values) for values in metrics.values() if len(values) > 1)
    if len(axes) < _FEWEST_ROWS:
        return set()
    trained = [frozenset(v) for name, v in metrics.items() if name.startswith("train")]
    main = Counter(trained or axes.elements()).most_common(1)[0][0]
    return {
        name
        for name, values in metrics.items()
        if sum(step in main for step in values) * 2 < len(values)
    }


def _by_step(
    node: Mapping[str, Any], name: str, depth: int
) -> Iterator[tuple[str, dict[int, Any]]]:
    values = _steps_of(node)
    if values is not None:
        yield name, values
        return
    for key, inner in node.items():
        if not isinstance(inner, dict) or depth > _DEEPEST:
            continue
        below = name if key in _VALUE_KEYS and name else f"{name}/{key}" if name else key
        yield from _by_step(inner, below, depth + 1)


def _steps_of(node: Mapping[str, Any]) -> dict[int, Any] | None:
    """The values of one metric by step, if that is what the object is.

    Text that spells no finite number is padding: the step was not logged.
    """
    counts, values = (next((node[k] for k in keys if k in node), None) for keys in _PAIRED)
    if isinstance(counts, list) and isinstance(values, list) and len(counts) == len(values):
        pairs = zip(map(steps.step_number, counts), values, strict=True)
        return {step: value for step, value in pairs if step is not None}
    if not node or not all(key.lstrip("-").isdecimal() and len(key) < 19 for key in node):
        return None
    return {
        int(key): value
        for key, value in node.items()
        if number(value) is not None and not (isinstance(value, str) and not _finite(value))
    }


def _finite(text: str) -> bool:
    value = number(text)
    return value is not None and abs(value) < float("inf")


def _columnar(document: Mapping[str, Any]) -> Reading | None:
    """Lists of equal length, one of which is the steps."""
    key = next((key for key in _STEP_LISTS if isinstance(document.get(key), list)), None)
    if key is None or len(document[key]) < _FEWEST_ROWS:
        return None
    numbered = [steps.step_number(value) for value in document[key]]
    columns = {
        name: values
        for name, values in document.items()
        if name != key and isinstance(values, list) and len(values) == len(numbered)
    }
    reading = Reading()
    for index, step in enumerate(numbered):
        if step is not None:
            reading.rows.add(step, {name: values[index] for name, values in columns.items()})
    return reading if columns else None


def _single(document: Any) -> Reading | None:
    if not isinstance(document, dict) or not _measures(document):
        return None
    step = steps.step_of(document)
    if step is None:
        return None
    reading = Reading()
    reading.rows.add(step, document)
    return reading
