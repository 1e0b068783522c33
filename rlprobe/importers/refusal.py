"""What a file holds that could not be read: a few of its lines, and the format it is nearest to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from rlprobe import nearest
from rlprobe.errors import EmptyRunError, InputError, UnknownFormatError
from rlprobe.importers.formats import formats
from rlprobe.importers.importer import CutDocumentError, Importer
from rlprobe.importers.numbers import spelled
from rlprobe.importers.source import Source

_MOST_LINES = 20_000  # that are looked at
_WIDEST = 2_000  # characters of a line that are looked at
_QUOTED = 72  # characters of a line that is quoted
_EXAMPLES = 2
_CELL_ROWS = 50
_FEWEST_ROWS = 3  # lines from which cells of equal number are a table
_MOST_CHARACTERS = 4_000_000
_NUMBER = re.compile(  # the words before a number, which names of metrics end
    r"(?<![\w./%-])(?P<words>[A-Za-z_][\w./%-]{0,60}(?: [A-Za-z][\w./%-]{0,40}){0,3})"
    r"[\"')\]]{0,2}[\s:=|]{1,20}[-+]?(?:\d|\.\d|nan\b|inf\b)",
    re.IGNORECASE,
)
_STEP = re.compile(r"\b(?:global.?)?(?:step|iter|iteration|update|epoch|episode|rollout)s?\b", re.I)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_DELIMITERS = ",\t;|"
_HINT = "Give the file that the trainer's own logger writes: JSON Lines, CSV or event files."

# How files begin that hold no text; the longer mark first.
_MARKS = (
    (b"\x89HDF\r\n\x1a\n", "HDF5"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a zip archive: PyTorch's checkpoints are such, too"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!", "a RAR archive"),
    (b"\x7fELF", "a program"),
    (b"\x80\x02", "a pickle"),
    (b"\x80\x03", "a pickle"),
    (b"\x80\x04", "a pickle"),
    (b"\x80\x05", "a pickle"),
)


@dataclass
class _Seen:
    """What the lines of a file look like.

    Attributes:
        telling: lines with a number beside a word that speaks of a loss, a reward and the like.
        numbered: other lines with a number beside a word.
        plain: the first line of anything else.
        numbers, stepped: how many lines have a number beside a word, and a word for steps too.
    """

    telling: list[tuple[int, str]] = field(default_factory=list)
    numbered: list[tuple[int, str]] = field(default_factory=list)
    plain: list[tuple[int, str]] = field(default_factory=list)
    numbers: int = 0
    stepped: int = 0

    def add(self, number: int, text: str) -> None:
        """Look at one line."""
        names = [match["words"] for match in _NUMBER.finditer(text)]
        if not names:
            self.plain += [] if self.plain or not text else [(number, text)]
            return
        self.numbers += 1
        self.stepped += bool(_STEP.search(text))
        known = self.telling if any(map(nearest.tells_something, names)) else self.numbered
        known += [(number, text)] if len(known) < _EXAMPLES else []

    def examples(self) -> list[tuple[int, str]]:
        """The lines that say most."""
        return self.telling or self.numbered or self.plain


def refused(source: Source, failed: InputError | None) -> InputError:
    """The error of a file that no format could read.

    Args:
        source: the file.
        failed: what the first format said that took it for its own; None if none did.
    """
    if failed is None:
        seen = _seen(source) if source.is_text else _Seen()
        why = _text(source, seen) if source.is_text else _binary(source)
        unknown = UnknownFormatError(f"Couldn't read '{source.path}': {why}", hint=_HINT)
        unknown.telling = bool(seen.telling)
        return unknown
    if not isinstance(failed, EmptyRunError | CutDocumentError) or not source.is_text:
        return failed
    importer = _taken_for(source)
    near = f" Nearest: {importer.name}." if importer else ""
    return type(failed)(f"{failed}. {_quoted(_seen(source))}{near}", hint=failed.hint)


def _taken_for(source: Source) -> Importer | None:
    own = (importer for importer in formats() if not importer.fallback)
    return next((importer for importer in own if importer.recognises(source)), None)


def _text(source: Source, seen: _Seen) -> str:
    near = _nearest(source, seen)
    return f"no metrics in it that rlprobe understands. {_quoted(seen)} {near}"


def _binary(source: Source) -> str:
    start = source.head[:8]
    what = next((f" ({name})" for mark, name in _MARKS if start.startswith(mark)), "")
    return f"no known log format, and no text. It begins with the bytes {start.hex(' ')}{what}"


def _lines(source: Source) -> Iterator[str]:
    size = 0
    for line in islice(source.lines(), _MOST_LINES):
        text = line[: 4 * _WIDEST].decode("utf-8", "replace")
        text = _ESCAPES.sub("", text).strip()[:_WIDEST]
        yield text
        size += len(text)
        if size > _MOST_CHARACTERS:
            return


def _seen(source: Source) -> _Seen:
    seen = _Seen()
    for number, text in enumerate(_lines(source), start=1):
        seen.add(number, text)
    return seen


def _quoted(seen: _Seen) -> str:
    quotes = [f'line {n:,}: "{nearest.excerpt(text, _QUOTED)}"' for n, text in seen.examples()]
    return f"Seen: {'; '.join(quotes)}."


def _nearest(source: Source, seen: _Seen) -> str:
    """The format that the text is nearest to, and why it is not that."""
    rows = (line for line in _lines(source) if line and not line.startswith("#"))
    why = _why_no_table(list(islice(rows, _CELL_ROWS)))
    if why:
        return f"Nearest: a table with a delimiter ({why})."
    if not seen.numbers:
        return "No number in it stands beside a word: it is no log of metrics."
    lines = f"{seen.numbers:,} lines have" if seen.numbers > 1 else "1 line has"
    if not seen.telling:
        why = "but none the name of a metric that rlprobe knows"
    elif not seen.stepped:
        why = "but none tells a step"
    else:
        why = "but in none of them were a step and a metric understood"
    return f"Nearest: console output ({lines} numbers beside words, {why})."


def _why_no_table(lines: Sequence[str]) -> str:
    """Why lines most of which are cells of numbers are no table; empty where they are none."""
    if len(lines) < _FEWEST_ROWS:
        return ""
    delimiter = max(_DELIMITERS, key=lines[1].count)
    header, *rows = [line.strip(delimiter).split(delimiter) for line in lines]
    if sum(_is_numeric(row) for row in rows) * 2 < len(rows):
        return ""
    width = Counter(map(len, rows)).most_common(1)[0][0]
    if len(header) != width:
        return f"its first line has {len(header)} cells, most rows have {width}"
    if _is_numeric(header):
        return "its first line names no columns: it holds numbers"
    if not any(map(nearest.tells_something, header)):
        return "no column has the name of a metric that rlprobe knows"
    return "its header was not understood"


def _is_numeric(cells: Sequence[str]) -> bool:
    """Whether there are several cells, at least half of them numbers."""
    filled = [cell for cell in cells if cell.strip()]
    return len(filled) > 1 and sum(spelled(cell) is not None for cell in filled) * 2 >= len(filled)
