"""Names and numbers in a line of text: `loss: 0.52`, `lr=1e-4`, `tok/sec: 814,785`, `dt: 643ms`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlprobe.importers.numbers import spelled

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")
RAY = re.compile(r"^\s*\([\w.:]+(?: pid=\d+)?(?:, ip=[\d.]+)?\)\s?")  # before a line of a worker
RANK = re.compile(r"^\s*\[(?:rank|default)(\d+)\]:?\s?")
NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
    r"|nan|inf(?:inity)?)"
)
_VALUE = rf"(?:(?:np|numpy)\.float\d+\({NUMBER}\)|tensor\({NUMBER}[^()]{{0,40}}\)|{NUMBER})"
_UNIT = r"(?:\s?(?:ms|sec|s|m|h|%|[KMGT]i?B|tok(?:ens)?/s(?:ec)?|it/s|samples/s))?"
_KEY = r"[A-Za-z_][\w./@%-]{0,79}(?:\([\w/%]{1,20}\))?"
# Every repetition is bounded and a name starts at a word's start: no line takes long.
PLAIN = re.compile(
    rf"(?<![\w./@%-])(?P<key>{_KEY}(?: [A-Za-z][\w./@%()-]{{0,39}}){{0,4}}?)"
    rf"(?:\s{{0,20}}[:=]\s{{0,20}}|\s{{1,20}})\[?"
    rf"(?P<value>{_VALUE})(?P<unit>{_UNIT})(?=$|[\s,|;)\](])(?:\s?\([^()]{{0,24}}\))?",
    re.IGNORECASE,
)
_ITEM = re.compile(
    rf"(?P<key>\S.*?)\s*[:=]\s*(?P<value>{_VALUE})\s*(?P<unit>[A-Za-z%/]*)\s*", re.IGNORECASE
)
_SECONDS = {"ms": 1e-3, "%": 1e-2}


def plain_pairs(text: str) -> tuple[list[tuple[str, float]], str]:
    """Every name with its number in a text, and what of the text is left."""
    pairs: list[tuple[str, float]] = []
    rest: list[str] = []
    position = 0
    for match in PLAIN.finditer(text):
        value = value_of(match["value"], match["unit"])
        if value is None:
            continue
        pairs.append((match["key"], value))
        rest.append(text[position : match.start()])
        position = match.end()
    rest.append(text[position:])
    return pairs, " ".join(rest)


def piped(text: str) -> Iterator[tuple[str, float]]:
    """Names and numbers between bars: ` lm loss: 1.0E+00 | grad norm: 0.5 |`."""
    for item in text.split("|"):
        match = _ITEM.fullmatch(item.strip())
        value = value_of(match["value"], match["unit"]) if match else None
        if match and value is not None:
            yield match["key"], value


def value_of(text: str, unit: str) -> float | None:
    """A number with its unit: milliseconds become seconds, a percentage a fraction."""
    value = spelled(text)
    return None if value is None else value * _SECONDS.get(unit.strip().lower(), 1.0)
