"""A whole JSON document: a list of rows, or metrics with their values by step."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlprobe import schema
from rlprobe.errors import EmptyRunError
from rlprobe.importers import steps
from rlprobe.importers.documents.json_columns import columnar
from rlprobe.importers.documents.json_rows import listed, measures
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
      `log_history`, an export of a tracker), or rows by their step (`{"epoch_1": {…}, …}`);
    - a metric with its values by step: `{"train/loss": {"1": 0.5, "2": 0.4}}` (NeMo-RL), also with
      the values one level down (`{"lm loss": {"start_step": 1, "values": {"1": 10.5}}}`, Megatron's
      golden files, where the text `"nan"` is padding and means not logged);
    - columns: `{"step": [1, 2], "loss": [0.5, 0.4]}`, at any depth; the list of steps may stand
      above them, and columns that are logged more rarely may have one of their own; columns that
      have none of their length are counted as not read. Objects that repeat the same columns are
      several runs;
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
        readings = _fullest(
            [
                _points(document, source),
                listed(document, source, complaints),
                _mapped(document),
                columnar(document, source),
            ]
        )
        readings = readings or _single(document)
        if not any(len(reading.rows) for reading in readings):
            raise EmptyRunError(
                f"Couldn't find metrics in '{source.path}': the document has no rows with steps, "
                "and no metrics with values by step"
            )
        readings[0].problems = complaints.all()
        return readings


def _fullest(found: Sequence[list[Reading]]) -> list[Reading]:
    """What has most rows of those that were found in one document; the first of equals."""
    return max(found, key=lambda readings: sum(len(reading.rows) for reading in readings))


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


def _points(document: Any, source: Source) -> list[Reading]:
    """A list of `[time, step, value]`: TensorBoard's export of one metric, named by its file."""
    if not isinstance(document, list) or not document:
        return []
    if not all(isinstance(item, list) and len(item) == _TRIPLE for item in document):
        return []
    reading = Reading()
    for _, at, value in document:
        step = steps.step_number(at)
        if step is not None:
            reading.rows.add(step, {tag_of(source): value})
    return [reading]


def tag_of(source: Source) -> str:
    """The metric that the name of an exported file tells: `run-a-tag-train_loss.json`."""
    return Path(source.name).stem.rpartition("tag-")[2] or source.name


def _mapped(document: Any) -> list[Reading]:
    """Metrics with their values by step."""
    if not isinstance(document, dict):
        return []
    metrics = dict(_by_step(document, "", 0))
    apart = _on_other_axes(metrics)
    rows: Rows = {}
    for name, values in metrics.items():
        for step, value in () if name in apart else values.items():
            rows.setdefault(step, {})[name] = value
    if not rows:
        return []
    rows, key = _renumbered(rows, metrics)
    reading = Reading(step_key=key)
    if apart:
        some = ", ".join(sorted(apart)[:2])
        reading.notes = [f"{len(apart):,} metrics on another step axis left out: {some}, …"]
    for step in sorted(rows):
        reading.rows.add(step, rows[step])
    return [reading]


def _renumbered(rows: Rows, metrics: Iterable[str]) -> tuple[Rows, str | None]:
    """Rows by the steps that one of the metrics is, where what they have is an index (pandas)."""
    key = next(iter(filter(steps.is_step, steps.ranked(metrics))), None)
    numbered = [steps.step_number(row.get(key)) for row in rows.values()] if key else [None]
    if None in numbered or len(set(numbered)) < len(rows):
        return rows, None
    found = zip(numbered, rows.values(), strict=True)
    return {step: row for step, row in found if step is not None}, key


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


def _single(document: Any) -> list[Reading]:
    if not isinstance(document, dict) or not measures(document):
        return []
    key = next(iter(filter(steps.is_step, steps.ranked(document))), None)
    step = steps.step_number(document[key]) if key else steps.step_of(document)
    if step is None:
        return []
    reading = Reading(step_key=key)
    reading.rows.add(step, document)
    return [reading]
