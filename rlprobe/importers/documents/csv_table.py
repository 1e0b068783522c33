"""Tables with a delimiter: CSV, TSV and their relatives."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from rlprobe.errors import EmptyRunError
from rlprobe.importers.documents.csv_blocks import BLOCK_BYTES
from rlprobe.importers.documents.csv_cells import Style, style_of
from rlprobe.importers.documents.csv_lines import Line, head_of
from rlprobe.importers.documents.csv_reader import TableReader
from rlprobe.importers.documents.csv_rows import Table
from rlprobe.importers.importer import Importer, Reading
from rlprobe.importers.source import Source

_SUFFIXES = frozenset({".csv", ".tsv"})
_PEEK_ROWS = 50
_HEAD_ROWS = 4  # that a header may take where a terminal broke it
# What a line of console output has, and no name of a column: prefixes, stamps, calls, braces.
_NO_NAME = re.compile(
    r"^\s*(?:>\s|\d+:\s|\[?(?:rank|default)\d+\]?:|\(\w[\w.:]*(?:\spid=\d+)?\)\s)"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:|[{}]|\]\s*\[|^[-=]{3,}$|<\w+>"
    r"|:\s?[-+]?\.?\d|^(?:step|iter|iteration|epoch)\s+\d|(?:\b\w+[.,]?\s+){6}|(?:\b[a-zA-Z]+[.,]?\s+){5}"
)
_RULE = re.compile(r"[\s|:+-]*-[\s|:+-]*")


class CSVTable(Importer):
    """A table with a header and one logged step per line; any delimiter, any line end.

    - W&B's export of a chart: columns are `run - metric`, each with a `__MIN` and a `__MAX` beside
      it, which are dropped; the columns of several runs become several runs.
    - `progress.csv` of Stable-Baselines3: the step is `time/total_timesteps`, an empty cell is not
      logged. That of RLlib (Ray Tune): the step is `training_iteration`.
    - `monitor.csv` (Stable-Baselines3, OpenAI baselines): a comment `#{…}`, then reward, length and
      time of each episode under `r,l,t`; rows are numbered by episode.
    - `metrics.csv` of Lightning: training and validation stand on separate rows of one step.
    - A header may come again, before each row or after a restart, and have more columns then.
    - The step is the column that counts updates best: `global_step`, `iterations`, `total/steps`,
      `time/total_timesteps`, … `--step-key` chooses another one; all are kept as columns.
    - Where cells have decimals after a comma (`0,5`), all do, and a point separates thousands; in a
      table that mixes both, numbers that can be read in two ways are not read.
    - A table of one value per row, which names its metric (`run,tag,step,value`): rows of one step
      become one, and each run is one.
    - A row that says that it is one of an evaluation (`val` under `split`, `phase`, `mode`, …) has
      its metrics below `eval/`.
    - Lines that start with `#` are comments. Where none but the last of these names the columns, it
      is the header.

    A row with another number of cells, or without a step, costs itself, and is counted; so are
    cells that look like numbers and are none. A table without a step is numbered by row.

    Source: stable_baselines3/common/logger.py (CSVOutputFormat), common/monitor.py,
    baselines/logger.py, ray/tune/logger/csv.py, lightning/fabric/loggers/csv_logs.py.
    """

    name = "csv"
    description = "CSV or TSV with a header (W&B export, progress.csv, monitor.csv, metrics.csv)"
    priority = 80

    def recognises(self, source: Source) -> bool:
        """A header of words, and below it rows of as many numbers."""
        if not source.is_text or b"\x1b[" in source.head:
            return False
        first, rows = _start(head_of(source))
        lines = [text for _, text in rows[:_PEEK_ROWS]]
        if any(map(_RULE.fullmatch, lines[:_HEAD_ROWS])):
            return False  # Markdown
        style = style_of([first, *lines])
        if style is None:
            return source.suffix in _SUFFIXES and bool(first)
        header = style.cells(first)
        # A file that says it is a table may have any names: W&B puts those of runs into them.
        text = source.suffix not in _SUFFIXES
        if any(style.number(cell) is not None for cell in header):
            return False
        if text and any(map(_NO_NAME.search, header)):
            return False
        table = Table(source, style, header)
        cells = [style.cells(text) for text in lines]
        taken = [row for row in cells if not table.is_header(row)]
        widths = {len(header), *(len(row) for row in cells if table.is_header(row))}
        numeric = [_numeric(row, style) for row in taken if len(row) in widths]
        holding = sum(any(style.number(cell) is not None for cell in row) for row in taken)
        fits = any(numeric) and sum(numeric) * 2 >= holding
        return fits and not (text and _is_broken(source))

    def read(self, source: Source) -> list[Reading]:
        """The run in the table; several where it has the columns of several."""
        head = head_of(source)
        first, peeked = _start(head)
        style = style_of([first, *(text for _, text in peeked[:_PEEK_ROWS])]) or Style(",")
        table = Table(source, style, style.cells(first))
        if not table.header:
            raise EmptyRunError(f"Couldn't find metrics in '{source.path}': it has no header")
        rows = [style.cells(text) for _, text in peeked[:_PEEK_ROWS]]
        table.choose_step(rows)
        reader = TableReader(table, first, rows)
        for block in source.blocks(BLOCK_BYTES):
            reader.read(block)
        reader.finish()
        return table.finish()


def _is_broken(source: Source) -> bool:
    """Whether it is what a terminal showed: no table has its rows broken."""
    # Its patterns are needed for hardly any table.
    from rlprobe.importers.console.terminal import terminal_of

    return terminal_of(source.head) is not None


def _start(lines: Sequence[Line]) -> tuple[str, list[Line]]:
    """The header, and the lines below it."""
    plain = [line for line in lines if line[1].strip()]
    rows = [line for line in plain if not line[1].startswith("#")]
    comments = list(itertools.takewhile(lambda line: line[1].startswith("#"), plain))
    if not rows:
        return "", []
    if comments and (title := _title(comments[-1][1], rows)):
        return title, rows
    return rows[0][1], rows[1:]


def _title(comment: str, rows: Sequence[Line]) -> str:
    """The names in a comment, where the rows below it have none: `# step,loss`."""
    named = comment.lstrip("# ")
    style = style_of([named, *(text for _, text in rows[:_PEEK_ROWS])])
    if style is None:
        return ""
    first, names = style.cells(rows[0][1]), style.cells(named)
    filled = [cell for cell in first if cell]
    fits = len(first) == len(names) and not any(style.number(name) is not None for name in names)
    return named if fits and all(style.number(cell) is not None for cell in filled) else ""


def _numeric(row: Sequence[str], style: Style) -> bool:
    filled = [cell for cell in row if cell]
    numbers = sum(style.number(cell) is not None for cell in filled)
    return bool(numbers) and numbers * 2 >= len(filled)
