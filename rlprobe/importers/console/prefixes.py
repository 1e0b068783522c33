"""What loggers, launchers and mail put before a line: stamps, levels, workers, ranks, colours."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")
RAY = re.compile(r"^\s*\([\w.:]+(?: pid=\d+)?(?:, ip=[\d.]+)?\)\s?")  # before a line of a worker
RANK = re.compile(r"^\s*\[(?:rank|default)(\d+)\]:?\s?")
_MOST = 8  # prefixes of one line
_BEFORE = re.compile(
    r"""\s*(?:
        (?P<mail>>)
      | \(\w[\w.:]{0,80}(?:[ ]pid=\d+)?(?:,[ ]ip=[\d.]+)?(?:,[ ]\w+=[\w.]+){0,3}\)(?=\s)
      | \[?(?:rank|default|rank:[ ]?)[ ]?(?P<rank>\d{1,6})\]?:?(?=\s|\[|$)
      | (?P<label>\d{1,6}):[ ](?=[{\[(|│<>]|[-=─━]{3}|\s*$|(?:global.)?(?:step|iter|epoch)|INFO)
      | [\[(]?\d{4}[-/.]\d\d[-/.]\d\d(?:[T ,][ ]?\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?
            (?:[ ]?Z|[ ]?[+-]\d\d:?\d\d)?)?[\])]?,?
      | [\[(]?\d\d-\d\d[ ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?[\])]?
      | [\[(]?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?[\])]?
      | \[?(?:INFO|DEBUG|WARNING|WARN|ERROR|SUCCESS|CRITICAL|TRACE)\]?(?::[\w.]{1,80}:)?(?=\s|\[|$)
      | \[[\w./-]{1,120}\.(?:py|cpp|cc|cu):\d+(?::\w+)?\]
      | [\w./-]{1,120}\.py:\d+(?::\w+)?\]?(?=\s|:)
      | \[(?:deepspeed|titan|megatron)\]
    )(?:\s*(?:[|:-]|>{1,3})(?=\s))?""",
    re.VERBOSE | re.IGNORECASE,
)
_STARTS = frozenset(">([0123456789")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output without what stands before it.

    Attributes:
        rank: the rank that printed it, where its prefix tells.
        prefixed: whether anything stood before it.
        cut: whether its end is missing.
        number: of the line in the log, from 1.
    """

    text: str
    rank: int | None = None
    prefixed: bool = False
    cut: bool = False
    number: int = 0


def bare(segment: str, number: int = 0) -> Line:
    """A line without colours and prefixes; the blanks before and after it stay."""
    text = ANSI.sub("", segment) if "\x1b" in segment else segment
    if text.startswith('{"log":'):
        text = _output_in(text)
    start = text.lstrip()
    if not start or not (start[0] in _STARTS or start[:1].isalpha()):
        return Line(text, number=number)
    rank: int | None = None
    position = 0
    for _ in range(_MOST):
        match = _BEFORE.match(text, position)
        if match is None or match.end() == position:
            break
        position = match.end()
        if found := match["rank"] or match["label"]:
            rank = int(found)
    return Line(text[position:], rank, position > 0, number=number)


def _output_in(text: str) -> str:
    """The line of output inside a line of a container's log (Docker's JSON files)."""
    try:
        line = json.loads(text).get("log")
    except (ValueError, RecursionError, AttributeError):
        return text
    return ANSI.sub("", line).strip() if isinstance(line, str) else text
