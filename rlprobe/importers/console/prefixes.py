"""What loggers, launchers and mail put before a line: stamps, levels, workers, ranks, colours."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")
RAY = re.compile(r"^\s*\([\w.:]+(?: pid=\d+)?(?:, ip=[\d.]+)?\)\s?")  # before a line of a worker
RANK = re.compile(r"^\s*\[(?:rank|default)(\d+)\]:?\s?")
_MOST = 8  # prefixes of one line
# Who printed the line: what stands behind is as it was printed, blanks and bars included.
_SPEAKER = re.compile(
    r"""\s*(?:
        >(?:[ ]|(?=$|>))
      | \(\w[\w.:]{0,80}(?:[ ]pid=\d+)?(?:,[ ]ip=[\d.]+)?(?:,[ ]\w+=[\w.]+){0,3}\)(?:[ ]|$)
      | wandb:(?=[ ])
      | \[(?:rank|default)[ ]?(?P<rank>\d{1,6})\]:?[ ]?
      | (?:rank|default)(?P<of>\d{1,6}):(?:[ ]|$)
    )""",
    re.VERBOSE | re.IGNORECASE,
)
# `0: step 3`, as `srun --label` prints it; once a line can be nothing else, all are taken so.
_LABEL = re.compile(r"\s*(?P<label>\d{1,6}):(?:[ ]|$)")
_LABELLED = re.compile(
    r"[{\[(|│<>╭╰┏]|[-=─━]{3}|\s*$|(?:global.)?(?:step|iter|epoch)|INFO|Result for "
    r"|[\w./@-]+\s+[-+.\dni]\S*\s+\d+\s*$|[\w.-]+/[\w./@-]+\s"
    r"|\s*[a-z_]*(?:step|iter|epoch)\w*\s{2}|\s*Learning iteration \d"
    r"|[a-z]+ \| |\d\d:\d\d:\d\d |\d{4}-\d\d-\d\d[ T]",
    re.IGNORECASE,
)
_BEFORE = re.compile(
    r"""\s*(?:
        [\[(]?\d{4}[-/.]\d\d[-/.]\d\d(?:[T ,][ ]?\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?
            (?:[ ]?Z|[ ]?[+-]\d\d:?\d\d)?)?[\])]?,?
      | [\[(]?\d\d[-/]\d\d[ ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?[\])]?
      | [\[(]?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?[\])]?
      | \[?(?:INFO|DEBUG|WARNING|WARN|ERROR|SUCCESS|CRITICAL|TRACE)\]?(?::[\w.]{1,80}:)?
            (?=[\s\['\"{]|$)
      | \[(?:INFO|DEBUG|WARNING|ERROR)\|[^\]\s]{1,80}(?:[ ][\d:.,]{1,20})?\]
      | [A-Za-z_][\w.]{0,60}[ ]-[ ](?:INFO|DEBUG|WARNING|ERROR)(?=[ ]-[ ])
      | \[[\w./-]{1,120}\.(?:py|cpp|cc|cu):\d+(?::\w+)?\]
      | [\w./-]{1,120}\.py:\d+(?::\w+)?\]?(?=\s|:)
      | \[(?:deepspeed|titan|megatron)\]
    )(?:\s*(?:[|:-]|>{1,3})(?=\s))?""",
    re.VERBOSE | re.IGNORECASE,
)
_STARTS = frozenset(">([0123456789")
# A piece of a text that `pprint` broke.
_PIECE = re.compile(r"""\s*(?P<quote>['"])(?P<text>.*)(?P=quote)\)?\s*""")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output without what stands before it.

    Attributes:
        rank: the rank that printed it, where its prefix tells.
        prefixed: whether anything stood before it.
        labelled: whether a number before it can be nothing but the task that printed it.
        cut: whether its end is missing.
        length: with its prefix, without its colours.
        number: of the line in the log, from 1.
    """

    text: str
    rank: int | None = None
    prefixed: bool = False
    labelled: bool = False
    cut: bool = False
    number: int = 0
    length: int = 0


def bare(segment: str, number: int = 0, *, labelled: bool = False) -> Line:
    """A line without colours and prefixes; the blanks before and after it stay.

    Args:
        labelled: whether a line before began with the number of its task.
    """
    text = ANSI.sub("", segment) if "\x1b" in segment else segment
    text = unpacked(text)
    start = text.lstrip()
    if not start or not (start[0] in _STARTS or start[:1].isalpha()):
        return Line(text, number=number, length=len(text))
    rank: int | None = None
    label = _LABEL.match(text) if start[0].isdigit() else None
    sure = label is not None and _LABELLED.match(text, label.end()) is not None
    position = label.end() if label is not None and (sure or labelled) else 0
    if label is not None and position:
        rank = int(label["label"])
    for _ in range(_MOST):
        match = _SPEAKER.match(text, position) or _BEFORE.match(text, position)
        if match is None or match.end() == position:
            break
        position = match.end()
        if match.re is _SPEAKER and (found := match["rank"] or match["of"]):
            rank = int(found)
    return Line(text[position:], rank, position > 0, sure, number=number, length=len(text))


def unpacked(text: str) -> str:
    """The line of output inside a line of a container's log (Docker's JSON files)."""
    if not text.startswith('{"log":'):
        return text
    try:
        line = json.loads(text).get("log")
    except (ValueError, RecursionError, AttributeError):
        return text
    return ANSI.sub("", line).strip() if isinstance(line, str) else text


def whole_of(lines: Sequence[str]) -> str:
    """Lines put together; pieces of one text, as `pprint` prints it, without their quotes."""
    first, *rest = lines
    pieces = [_PIECE.fullmatch(line) for line in rest]
    if rest and first.rstrip()[-1:] in ("'", '"') and all(pieces):
        return first.rstrip()[:-1] + "".join(piece["text"] for piece in pieces if piece)
    return "".join(lines)
