"""Where in a text a name may stand beside its number: found from the number, and not word by word.

A pattern that begins with a name is tried at every word of a completion. A number is rare there,
and the name before it has few words: it is tried at these alone, with the same matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Where a value may begin: behind a blank, or what stands between a name and its number.
_VALUE = re.compile(
    r"(?<=[\s>:=#\[])(?:[-+]?(?:\d|\.\d|nan|inf)|np\.|numpy\.|tensor\()", re.IGNORECASE
)
_START = re.compile(r"(?<![\w./@%-])[A-Za-z_]", re.IGNORECASE)
_BEFORE = re.compile(r"[\w./@%()\-:=#>\[]")  # what may stand last before a value and its blanks
_WORDS = 7  # of a name, and what stands between it and its number
_DENSE = 24  # characters for one number: where there are less, names are as rare as numbers
_LONGEST = 340  # characters of these


def near_numbers(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """What `pattern.finditer` gives, for a pattern of a name and a value beside it."""
    if len(_VALUE.findall(text)) * _DENSE > len(text):
        yield from pattern.finditer(text)
        return
    begin = at = 0
    while (value := _VALUE.search(text, at)) is not None:
        place = value.start()
        at = place + 1
        for start in _starts(text, begin, place):
            match = pattern.match(text, start)
            if match is not None:
                yield match
                begin = at = match.end()
                break


def _starts(text: str, begin: int, place: int) -> Iterator[int]:
    """Where the name of a value may begin."""
    first = max(begin, place - _LONGEST)
    before = text[first:place]
    last = before.rstrip()[-1:]
    if not last or not _BEFORE.match(last):
        return
    words = before.rsplit(None, _WORDS)
    if len(words) > _WORDS:
        first += len(words[0])
    for start in _START.finditer(text, first, place):
        yield start.start()
