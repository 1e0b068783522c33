"""Tables of rows: what `rlprobe ls` and `rlprobe query` print."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from rlprobe import numbers, schema
from rlprobe.report import escape
from rlprobe.report.json import attempt, dumps, plain
from rlprobe.store.run import RunInfo

_CELL = 60
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001 - as typed


def recordings(infos: Sequence[RunInfo], sizes: Sequence[int]) -> str:
    """One line per recording."""
    columns = ("run", "kind", "steps", "attempts", "ended", "size", "started")
    pairs = zip(infos, sizes, strict=True)
    return _table(columns, [_recording(info, size) for info, size in pairs])


def _recording(info: RunInfo, size: int) -> list[str]:
    latest = info.attempts[-1] if info.attempts else None
    started = info.attempts[0].started if info.attempts else math.nan
    return [
        escape.name(info.path, _CELL),
        "/".join(escape.name(part) for part in (info.algorithm, info.framework) if part) or "-",
        numbers.steps(*_span(info)).removeprefix("steps ").removeprefix("step "),
        str(len(info.attempts)),
        latest.ended if latest else "unknown",
        numbers.size(size),
        numbers.moment(started),
    ]


def _span(info: RunInfo) -> tuple[int | None, int | None]:
    first = [item.first_step for item in info.attempts if item.first_step is not None]
    last = [item.last_step for item in info.attempts if item.last_step is not None]
    return min(first, default=None), max(last, default=None)


def recordings_json(infos: Sequence[RunInfo], sizes: Sequence[int]) -> str:
    """The same for programs."""
    listed = [
        {
            "path": info.path,
            "id": info.id,
            "framework": info.framework,
            "algorithm": info.algorithm,
            "attempts": [attempt(item) for item in info.attempts],
            "bytes": size,
        }
        for info, size in zip(infos, sizes, strict=True)
    ]
    return dumps({"format_version": schema.REPORT_VERSION, "recordings": listed})


def rows_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The rows of a query as a table."""
    return _table(
        [escape.name(name) for name in columns], [[_cell(value) for value in row] for row in rows]
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return numbers.number(value)
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    return escape.name(str(value), _CELL)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    lines = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (columns, *rows)
    ]
    return "".join(f"{line}\n" for line in lines)


def rows_csv(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    raw: bool = False,
    no_formulas: bool = False,
) -> str:
    """The rows of a query as CSV; null is empty, NaN is NaN.

    Args:
        raw: texts as they are; else what could move a cursor or hide itself becomes an escape, and
            line breaks and tabs remain.
        no_formulas: texts that a spreadsheet would compute get a `'` before them.
    """

    def cell(value: Any) -> Any:
        field = _field(value)
        if not isinstance(field, str):
            return field
        shown = field if raw else escape.kept_breaks(field)
        return f"'{shown}" if no_formulas and field.startswith(_FORMULA) else shown

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([cell(name) for name in columns])
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()


def _field(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return numbers.number(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value if isinstance(value, int | float | Decimal | None) else str(value)


def rows_json(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The rows of a query as a list of objects."""
    return dumps([plain(dict(zip(columns, row, strict=True))) for row in rows])
