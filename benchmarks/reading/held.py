"""What a file holds, counted apart from the importers: rows, columns and numbers.

Nothing here is shared with `rlprobe.importers`: plain JSON and CSV, a small decoder of event files,
and one pattern for everything that is text.
"""

from __future__ import annotations

import csv
import html
import json
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf|NaN|Infinity)"
_WORD = re.compile(
    r"loss|reward|grad|kl|entropy|norm|\blr\b|learning.rate|score|accura|return|advantage|clip|"
    r"length|ppl|perplexity|logp|margin|ratio|value|tflops|tokens|overflow|scale|variance",
    re.IGNORECASE,
)
_PAIR = re.compile(
    rf"(?P<key>[A-Za-z_][\w./@ ()%-]{{0,60}}?)['\"]?\s*(?:[:=│|]+\s*|\s+)['\"(\[]*"
    rf"(?:np\.float\d+\(|tensor\()?(?P<number>{_NUMBER})(?![\w.])"
)
# A name, a sign between and a number: a metric of any name, where lines like it come again.
_LABELLED = re.compile(
    rf"(?<![\w./:-])(?P<key>[A-Za-z_][\w./@()%-]*(?: [A-Za-z][\w./()%-]*){{0,3}})['\"]?\s*[:=│]\s*"
    rf"(?P<number>{_NUMBER})(?![\w.:/-])"
)
_NO_METRIC = re.compile(
    r"\b(?:eta|pid|time stamp|rank|seed|port|line|version|Rank|ip)$", re.IGNORECASE
)
_AGAIN = 3
_DIGITS = re.compile(r"[-+]?\d[\d.,:eE+-]*|\bnan\b|\binf\b")
_LONGEST = 20_000


@dataclass
class Held:
    """What a file holds.

    Attributes:
        rows: in text, the lines that look like metrics.
        columns: in tables, every column with its numbers.
        lines: in text, the lines that look like metrics, by their template (the line without its
            digits), each with its number and the numbers that have a name in it.
    """

    kind: str
    rows: int = 0
    columns: dict[str, list[float]] = field(default_factory=dict)
    lines: dict[str, list[tuple[int, str, list[float]]]] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        """How many numbers there are."""
        in_text = sum(len(values) for found in self.lines.values() for _, _, values in found)
        return sum(map(len, self.columns.values())) + in_text


def held(path: Path) -> Held:
    """Count a file by what its content is."""
    data = path.read_bytes()
    if path.suffix == ".ipynb":
        return _text(_notebook(json.loads(data)), "notebook")
    if b"brain.Event" in data[:60] or ".tfevents" in path.name:
        return _events(data)
    text = data.decode("utf-8", "replace")
    if path.suffix == ".csv":
        return _csv(text)
    rows = _json_lines(text)
    if rows:
        return _table("json lines", rows)
    try:
        return _document(json.loads(text))
    except ValueError:
        return _text(text, "text")


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}/{key}" if name else str(key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, float(value)


def _table(kind: str, rows: Iterable[Any]) -> Held:
    found = Held(kind)
    for row in rows:
        _add(found, dict(_flat(row)))
    return found


def _add(found: Held, numbers: dict[str, float]) -> None:
    found.rows += bool(numbers)
    for name, value in numbers.items():
        found.columns.setdefault(name, []).append(value)


def _json_lines(text: str) -> list[Any]:
    rows = []
    for line in text.splitlines():
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            return []
        if not isinstance(row, dict):
            return []
        rows.append(row)
    return rows if len(rows) > 1 else []


def _document(document: Any) -> Held:
    if isinstance(document, dict) and isinstance(document.get("log_history"), list):
        return _table("trainer_state", document["log_history"])
    if isinstance(document, list):
        return _table("json rows", document)
    if not isinstance(document, dict):
        return Held("json")
    rows: dict[str, dict[str, Any]] = {}
    for key, series in _series(document):
        for place, value in series.items():
            rows.setdefault(str(place), {})[key] = value
    return _table("json columns", rows.values()) if rows else _table("json", [document])


def _series(document: dict[str, Any], name: str = "") -> Iterator[tuple[str, dict[Any, Any]]]:
    """Columns: lists of numbers, or numbers by step, wherever they are nested."""
    for key, value in document.items():
        path = f"{name}/{key}" if name else key
        if (
            isinstance(value, list)
            and value
            and all(isinstance(v, int | float | None) for v in value)
        ):
            yield path, dict(enumerate(value))
        elif isinstance(value, dict) and value and all(str(k).isdigit() for k in value):
            yield path, value
        elif isinstance(value, dict):
            yield from _series(value, path)


def _csv(text: str) -> Held:
    lines = [
        line for line in re.split(r"\r\r\n|\r\n|\r|\n", text) if line and not line.startswith("#")
    ]
    found = Held("csv")
    reader = csv.reader(lines)
    head = next(reader, [])
    for row in reader:
        _add(found, {n: float(c) for n, c in zip(head, row, strict=False) if _is_number(c)})
    return found


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _notebook(document: dict[str, Any]) -> str:
    parts: list[str] = []
    for cell in document.get("cells", []):
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            texts = (output.get("text"), data.get("text/html"), data.get("text/plain"))
            parts += ["".join(text) if isinstance(text, list) else text for text in texts if text]
    text = "\n".join(parts)
    text = re.sub(r"</t[dh]>\s*<t[dh][^>]*>", " | ", text)
    return html.unescape(re.sub(r"</tr>|<tr[^>]*>", "\n", text))


def _text(text: str, kind: str) -> Held:
    found = Held(kind)
    other: dict[str, list[tuple[int, str, list[float]]]] = {}
    for number, printed in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = _ANSI.sub("", printed[:_LONGEST])
        named, labelled = _numbers(line)
        if named or labelled:
            template = " ".join(_DIGITS.sub("#", line).split())[:160]
            of = found.lines if named else other
            of.setdefault(template, []).append((number, line.strip(), named + labelled))
    found.lines |= {template: some for template, some in other.items() if len(some) >= _AGAIN}
    found.rows = sum(map(len, found.lines.values()))
    return found


def _numbers(line: str) -> tuple[list[float], list[float]]:
    """Numbers with the name of a metric, and those that have any name and a sign between."""
    named = [
        _float(match["number"])
        for match in (_PAIR.finditer(line) if _WORD.search(line) else ())
        if _WORD.search(match["key"])
    ]
    labelled = [
        _float(match["number"])
        for match in _LABELLED.finditer(line)
        if not _NO_METRIC.search(match["key"])
    ]
    return named, labelled


def _float(text: str) -> float:
    try:
        return float(text.replace(",", "").rstrip("."))
    except ValueError:
        return float("nan")


def _events(data: bytes) -> Held:
    found = Held("event file")
    steps: set[int] = set()
    at = 0
    while at + 12 <= len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        event = dict(_fields(data[at + 12 : at + 12 + size]))
        at += size + 16
        tags = [dict(_fields(value)) for number, value in _fields(event.get(5, b"")) if number == 1]
        for tag in tags:
            value = _scalar(tag)
            if value is not None:
                steps.add(event.get(2, 0))
                found.columns.setdefault(tag.get(1, b"").decode(), []).append(value)
    found.rows = len(steps)
    return found


def _scalar(tag: dict[int, Any]) -> float | None:
    """The number of a summary: `simple_value`, or a tensor of one float."""
    if 2 in tag:
        return float(struct.unpack("<f", tag[2])[0])
    tensor = dict(_fields(tag.get(8, b"")))
    if tensor.get(1) not in (1, 2):  # DT_FLOAT, DT_DOUBLE
        return None
    data = tensor.get(4) or tensor.get(5) or tensor.get(6) or b""
    kind = "<f" if len(data) == 4 else "<d"
    return float(struct.unpack(kind, data)[0]) if len(data) in (4, 8) else None


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Fields of a protocol buffer: numbers and bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
        elif kind == 2:
            size, at = _varint(data, at)
            yield tag >> 3, data[at : at + size]
            at += size
        elif kind in (1, 5):
            width = 8 if kind == 1 else 4
            yield tag >> 3, data[at : at + width]
            at += width
        else:
            return


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    return value, at
