"""The outputs of a notebook's cells -> lines, as a terminal would show them."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rlprobe.errors import EmptyRunError
from rlprobe.importers.console.cut import mended
from rlprobe.importers.console.output import readings_of
from rlprobe.importers.console.prefixes import ANSI
from rlprobe.importers.console.trainings import Mark
from rlprobe.importers.importer import CutDocumentError, Reading
from rlprobe.importers.source import Source
from rlprobe.values import Problem

_BREAK = re.compile(r"\r\n|[\r\n]")
_UNSEEN = re.compile(r"<(style|script)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
_ROW = re.compile(r"<tr\b.*?(?:</tr\s*>|$)", re.DOTALL | re.IGNORECASE)
_TABLE = re.compile(r"<table\b", re.IGNORECASE)
_END = re.compile(r"</table\s*>", re.IGNORECASE)
_NAMELESS = re.compile(r"<tr\b[^>]*>\s*<th\b[^>]*>\s*</th>", re.IGNORECASE)
_FIRST_CELL = re.compile(r"(<tr\b[^>]*>)\s*<t[hd]\b[^>]*>.*?</t[hd]>", re.IGNORECASE)
_LEFT_OUT = re.compile(r"<td\b[^>]*>(?:\.\.\.|…)</td>")  # rows that a data frame does not show
_TAG = re.compile(r"<[^<>]{0,2000}>")
_PROGRESS = re.compile(r"\[\s{0,9}(\d{1,15})/(\d{1,15}) [^\]<>]{0,10}:\d\d\b")
_REPR = re.compile(r"\s*<[\w.]+(?: object)?[^<>]*>\s*")
_WIDGET = "application/vnd.jupyter.widget-view+json"
_TRACEBACK = "Traceback (most recent call last):"


def read(source: Source) -> list[Reading]:
    """The trainings in the outputs of a notebook.

    Raises:
        CutDocumentError: it has no cells.
        EmptyRunError: no output holds rows of metrics.
    """
    text = source.whole().decode("utf-8", "replace")
    try:
        document, cut = json.loads(text), False
    except ValueError:
        document, cut = mended(text), True
    except RecursionError:
        document, cut = None, False
    cells = _cells(document)
    if cells is None:
        raise CutDocumentError(f"Couldn't read '{source.path}': no notebook with cells")
    try:
        readings = readings_of(source, _lines(cells))
    except EmptyRunError as error:
        raise EmptyRunError(
            f"Couldn't find metrics in '{source.path}': no output of its {len(cells)} cells "
            "holds rows of them",
            hint="A table of the Trainer has a row every `logging_steps` steps.",
        ) from error
    if cut:
        problem = Problem(str(source.path), "the notebook is cut off: read up to the cut")
        readings[-1].problems = [problem, *readings[-1].problems]
    return readings


def _cells(document: object) -> list[object] | None:
    """The cells of a notebook; those of nbformat 3 lie in worksheets."""
    if not isinstance(document, dict):
        return None
    if isinstance(cells := document.get("cells"), list):
        return cells
    sheets = document.get("worksheets")
    if not isinstance(sheets, list):
        return None
    return [cell for sheet in sheets if isinstance(sheet, dict) for cell in _list(sheet, "cells")]


def _list(parent: Mapping[str, Any], key: str) -> Sequence[object]:
    value = parent.get(key)
    return value if isinstance(value, list) else ()


def _lines(cells: Iterable[object]) -> Iterator[str | Mark]:
    """The lines of all outputs, cell by cell."""
    for cell in cells:
        if not isinstance(cell, dict) or cell.get("cell_type", "code") != "code":
            continue
        yield Mark(cell=True)
        for output in _joined(_list(cell, "outputs")):
            yield from _shown(output)


def _joined(outputs: Iterable[object]) -> Iterator[Mapping[str, Any]]:
    """Outputs in order; pieces of one stream that follow each other are one."""
    text: list[str] = []
    for output in outputs:
        if not isinstance(output, dict):
            continue
        if output.get("output_type", "stream") == "stream" and "text" in output:
            text.append(_text(output.get("text")))
            continue
        if text:
            yield {"output_type": "stream", "text": "".join(text)}
            text = []
        yield output
    if text:
        yield {"output_type": "stream", "text": "".join(text)}


def _shown(output: Mapping[str, Any]) -> Iterator[str | Mark]:
    kind = output.get("output_type")
    if not isinstance(kind, str):  # cut off before it was said
        kind = "error" if "traceback" in output else "display_data"
    if kind == "stream":
        yield from _split(_text(output.get("text")))
    elif kind in {"error", "pyerr"}:
        yield Mark(error=_error(output))
    elif kind in {"display_data", "execute_result", "update_display_data", "pyout"}:
        yield from _displayed(output)


def _displayed(output: Mapping[str, Any]) -> Iterator[str | Mark]:
    """A result in the richest form that holds metrics: a table, else its text."""
    data = output.get("data")
    if not isinstance(data, dict):  # nbformat 3 has no `data`: its keys are short names
        data = {f"text/{key}": output.get(key) for key in ("html", "markdown")}
        data["text/plain"] = output.get("text")
    if _WIDGET in data:
        return
    page = _text(data.get("text/html"))
    if _TABLE.search(page):
        yield from _page(page)
        return
    plain = _text(data.get("text/plain"))
    if plain.strip() and not _REPR.fullmatch(plain):
        yield from _split(plain)
    elif markdown := _text(data.get("text/markdown")):
        yield from _split(markdown)
    else:
        yield from _split(_plain(page))


def _page(page: str) -> Iterator[str | Mark]:
    """HTML with tables: each row in a line of its own, the text around them as text."""
    page = _UNSEEN.sub("", page)
    bar = _PROGRESS.search(page)
    if bar:
        yield Mark(at=int(bar[1]), of=int(bar[2]))
    before, *tables = _TABLE.split(page)
    yield from _split(_plain(before))
    for part in tables:
        table, *after = _END.split(part, maxsplit=1)
        yield "<table>"
        yield from _rows(table)
        yield "</table>"
        yield from _split(_plain("".join(after)))


def _rows(table: str) -> Iterator[str]:
    """The rows of a table; of a data frame without its index, which has no name."""
    indexed: bool | None = None
    for match in _ROW.finditer(table):
        row = " ".join(match[0].split())
        if indexed is None:
            indexed = _NAMELESS.match(row) is not None
        if not _LEFT_OUT.search(row):
            yield _FIRST_CELL.sub(r"\1", row, count=1) if indexed else row


def _plain(page: str) -> str:
    return html.unescape(_TAG.sub("", page))


def _error(output: Mapping[str, Any]) -> list[str]:
    """An exception in the shape in which Python prints it."""
    name, said = _text(output.get("ename")) or "Error", _text(output.get("evalue"))
    frames = [ANSI.sub("", line) for line in _split("\n".join(_strings(output.get("traceback"))))]
    first, *more = [line for line in said.split("\n") if line.strip()] or [""]
    told = f"{name}: {first}" if first else name
    return [_TRACEBACK, *(f"  {line}" for line in frames[1:]), told, *more]


def _split(text: str) -> Iterator[str]:
    return (line for line in _BREAK.split(text) if line)


def _text(value: object) -> str:
    """Text that is one string, or a list of lines with their ends."""
    return "".join(_strings(value))


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [part for part in value if isinstance(part, str)] if isinstance(value, list) else []
