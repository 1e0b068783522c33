"""Names and numbers in a line of text: `loss: 0.52`, `lr=1e-4`, `tok/sec: 814,785`, `dt: 643ms`."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rlprobe.importers.console.places import near_numbers
from rlprobe.importers.numbers import spelled

NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
    r"|nan|inf(?:inity)?)"
)
_VALUE = (
    rf"(?:(?:np|numpy)\.float\d+\({NUMBER}\)"
    rf"|tensor\(\[?{NUMBER}\]?(?:,\s?[a-z_]+=[^(),]{{1,40}}(?:\([^()]{{0,40}}\))?){{0,4}}\)|{NUMBER})"
)
_UNIT = (
    r"(?:\s?(?:ms|us|µs|secs?|seconds?|mins?|minutes?|hours?|hrs?|s|m|h|%|[KMGT]i?B|fps|TFLOPs?|reqs?"
    r"|(?:tok(?:en)?s?|it|iters?|steps?|samples?|examples?|seqs?)/s(?:ec)?|s/(?:it|iter|step))"
    r"(?![\w/]|\s{0,9}[:=]|\s[\d.-]))?"
)
_KEY = r"[A-Za-z_][\w./@%-]{0,79}(?:\([\w/%]{0,20}\))?"
_IN_UNIT = r"(?: \([A-Za-z%][\w/%.-]{0,19}\)(?=\s{0,9}[:=]|\s[-+.\d]))?"  # `time (ms): 12`
# Every repetition is bounded and a name starts at a word's start: no line takes long.
PLAIN = re.compile(
    rf"(?<![\w./@%-])(?P<key>{_KEY}(?: [A-Za-z][\w./@%()-]{{0,39}}){{0,4}}?{_IN_UNIT})"
    rf"(?:\s{{0,20}}(?P<sign>=>|[:=#])\s{{0,20}}|\s{{1,20}})(?P<list>\[\s{{0,9}})?"
    rf"(?P<value>{_VALUE})(?:\s{{0,9}}/\s{{0,9}}(?P<of>\d+)(?![\w.])"
    rf"|\s?(?:±|\+/?-)\s?(?P<spread>{NUMBER})(?![\w.]))?"
    rf"(?P<unit>{_UNIT})(?(list)(?:,\s?(?P=value)){{0,63}}\s?\])(?=$|[\s,|;()\]│]|[.:](?:\s|$))(?:\s?\([^()]{{0,24}}\))?",
    re.IGNORECASE,
)
_ITEM = re.compile(
    rf"(?P<key>\S.*?)\s*[:=]\s*(?P<value>{_VALUE})\s*(?P<unit>[A-Za-z%/]*)\s*", re.IGNORECASE
)
_MEASURED = re.compile(
    rf"(?P<value>{_VALUE})(?:\s?(?:±|\+/?-)\s?(?P<spread>{NUMBER}))?(?P<unit>{_UNIT})",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z]{2,}")
SOURCE_FILES = (".py", ".cpp", ".cc", ".cu")  # `train.py:143` is a place
_NUMBERS = frozenset({"nan", "inf", "infinity"})  # what stands before a number, and is no name
_SCALE = {"ms": 1e-3, "us": 1e-6, "µs": 1e-6, "%": 1e-2}


@dataclass(frozen=True, slots=True)
class Pair:
    """A name with its number.

    Attributes:
        of: the total of a counter: 500 in `step 12/500`.
        spread: what stands behind `±`.
        unit: as it is written: `s`, `ms`, `%`, …; empty where there is none.
        blank: whether nothing but blanks stands between them: `loss 0.5`.
        start, end: where it stands in the text.
    """

    key: str
    value: float
    of: float | None
    spread: float | None
    unit: str
    blank: bool
    start: int
    end: int


def pairs_in(text: str) -> list[Pair]:
    """Every name with its number, in order."""
    return list(_found_in(text))


@functools.lru_cache(maxsize=64)  # several readers look at a line, and at those beside it
def _found_in(text: str) -> tuple[Pair, ...]:
    pairs = []
    for match in near_numbers(PLAIN, text):
        value = value_of(match["value"], match["unit"])
        key = match["key"]
        if value is not None and not key.endswith(SOURCE_FILES) and key.lower() not in _NUMBERS:
            of, spread = match["of"], match["spread"]
            pairs.append(
                Pair(
                    key,
                    value,
                    None if of is None else float(of),
                    None if spread is None else value_of(spread, match["unit"]),
                    match["unit"].strip(),
                    match["sign"] is None,
                    match.start(),
                    match.end(),
                )
            )
    return tuple(pairs)


def left_of(text: str, pairs: Sequence[Pair]) -> str:
    """What of the text is in no pair."""
    ends = [0, *(pair.end for pair in pairs)]
    starts = [*(pair.start for pair in pairs), len(text)]
    return " ".join(text[end:start] for end, start in zip(ends, starts, strict=True))


def words_beside(text: str, pairs: Sequence[Pair]) -> int:
    """How many words of two letters or more of the text are in no pair: what has many is prose."""
    return len(_WORD.findall(left_of(text, pairs)))


def metrics_of(
    pairs: Sequence[Pair], name_of: Callable[[Pair], str] = operator.attrgetter("key")
) -> dict[str, float]:
    """Names and numbers, without counters that tell their total; `x ± y` is a mean and a spread."""
    row: dict[str, float] = {}
    spreads: dict[str, float] = {}
    for pair in pairs:
        if pair.of is None:
            name = name_of(pair)
            row[name] = pair.value
            if pair.spread is not None:
                spreads[f"{name}_std"] = pair.spread
    return {**spreads, **row}  # a name of its own tells better


def plain_pairs(text: str) -> tuple[list[tuple[str, float]], str]:
    """Every name with its number in a text, and what of the text is left."""
    pairs = pairs_in(text)
    return list(metrics_of(pairs).items()), left_of(text, pairs)


def piped(text: str) -> Iterator[tuple[str, float]]:
    """Names and numbers between bars: ` lm loss: 1.0E+00 | grad norm: 0.5 |`."""
    for item in text.split("|"):
        match = _ITEM.fullmatch(item.strip())
        value = value_of(match["value"], match["unit"]) if match else None
        if match and value is not None:
            yield match["key"], value


def measured(text: str) -> float | None:
    """A cell that is one number, with its unit or spread if it has some; None if it is none."""
    text = text.strip()
    match = _MEASURED.fullmatch(text)
    return value_of(match["value"], match["unit"]) if match else spelled(text)


def value_of(text: str, unit: str) -> float | None:
    """A number with its unit: milliseconds become seconds, a percentage a fraction."""
    value = spelled(text)
    return None if value is None else value * _SCALE.get(unit.strip().lower(), 1.0)
