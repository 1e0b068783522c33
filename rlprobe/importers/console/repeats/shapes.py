"""Lines that differ in nothing but their numbers: read once, then by a template.

A trainer prints the same line again and again with other numbers. What a line means is decided by
its parser alone; a template is learnt from it by asking about lines of the same shape with other
numbers in every spelling, and is given up wherever an answer is not what the numbers were.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_Numbers = dict[Hashable, float]
Meaning = tuple[Hashable, _Numbers]  # what does not depend on numbers, and numbers by their keys
Parser = Callable[[str], Meaning | None]
_Answer = tuple[list[float], _Numbers]  # the numbers of a line, and what the parser made of them

_TOKEN = re.compile(
    r"(?<![\w.@/+-])(?P<float>[-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.\d+)|[-+]\d+"
    r"|(?:(?<=[:=(])|(?<=[:=] ))[-+]?(?:nan|inf)(?![\w.]))"
    r"|(?<![\w.@+])(?<![A-Za-z_/]-)(?<![A-Za-z_]/)(?P<int>[0-9]+)",
    re.ASCII,
)
_COARSE = re.compile(r"[0-9.]+(?:[eE][-+][0-9]+)?")
_BLANKS = re.compile(r" {2,}")
_JOINTS = ":-/,."  # between digits: parts of a time, a date, a fraction or a grouped number
ANY = r"([-+.0-9eEnaif]{1,40})"
_PLAIN = r"(-?[0-9]{1,18}(?:\.[0-9]{1,24})?(?:e[-+][0-9]{1,3})?)"
_INTS = r"([0-9]{1,15})"
_SPELT = (
    "{0}.{1}", "-{0}.{1}", "{0}.{1}e-0{2}", "-{0}.{1}e+0{2}", "{0}", "-{0}", "0.0", "{0}e-0{2}",
    "{0}.{1}E-0{2}", "+{0}.{1}", ".{1}", "{0}.", "nan", "-nan", "inf", "-inf",
)  # fmt: skip
_PLAINLY = 8  # of these spellings are those of plain numbers
_FACTORS = (1.0, 1e-3, 1e-2, 1e-6, 60.0, 3600.0, 1e3, 1e6, 1e9)
_DIGITS = (1, 2, 4, 9, 15)  # of a whole number
_MOST_CHARACTERS = 16_384
_MOST_KNOWN = 4096  # shapes that are remembered
_MOST_ATTEMPTS = 12  # to learn a shape
_TRIED_FIRST = 8  # templates, before the shape of a line is looked at
_SEEN_BEFORE = 2  # lines of a shape before it is learnt
_CHECKED = 3  # uses of a template that the parser confirms


@dataclass(slots=True, eq=False)
class Template:
    """A line of one shape: where its numbers stand and what they are called.

    Attributes:
        head: what every such line means beside its numbers; None: nothing is said of the line.
        groups: where the numbers stand, in the order of their keys.
        scaled: what some of them are multiplied with.
        fixed: numbers that are the same in every line.
        unchecked: uses that are still confirmed by the parser.
        shape: whose template it is.
        patterns: of its numbers, in the order of the line.
    """

    match: Callable[[str], re.Match[str] | None]
    head: Hashable
    keys: tuple[Hashable, ...] = ()
    groups: tuple[int, ...] = ()
    scaled: Mapping[Hashable, float] = field(default_factory=dict)
    fixed: Mapping[Hashable, float] = field(default_factory=dict)
    unchecked: int = _CHECKED
    shape: Shape | None = None
    patterns: Sequence[str] = ()

    def meaning(self, match: re.Match[str]) -> Meaning | None:
        """That of a line that matches; ValueError where a number is none."""
        if self.head is None:
            return None
        numbers: _Numbers
        if not self.groups:
            return self.head, dict(self.fixed)
        if len(self.groups) == 1:
            numbers = {self.keys[0]: float(match[self.groups[0]])}
        else:
            numbers = dict(zip(self.keys, map(float, match.group(*self.groups)), strict=True))
        for key, factor in self.scaled.items():
            numbers[key] *= factor
        if self.fixed:
            numbers.update(self.fixed)
        return self.head, numbers


@dataclass(slots=True, eq=False)
class Shape:
    """Lines that are the same but for their numbers; templates differ in how these are spelt."""

    seen: int = 0
    attempts: int = 0
    templates: list[Template] = field(default_factory=list)

    def fitting(self, text: str) -> Template | None:
        """The template that a line has, if its use needs no look at the line any more."""
        fit = next((template for template in self.templates if template.match(text)), None)
        return None if fit is None or fit.unchecked else fit

    def learn(self, template: Template) -> None:
        """Keep a template."""
        template.shape = self
        self.templates.append(template)


class Shapes:
    """A parser of lines that is quick where lines repeat.

    Args:
        parser: a function of the line alone.

    Attributes:
        latest: the shape of the last line; None if it was not learnt.
    """

    def __init__(self, parser: Parser) -> None:
        self.latest: Shape | None = None
        self._parser = parser
        self._first: list[Template] = []
        self._known: dict[str, Shape] = {}

    def parse(self, text: str) -> Meaning | None:
        """What the parser says of the line."""
        self.latest = None
        for place, template in enumerate(self._first):
            match = template.match(text)
            if match is not None:
                if place:
                    self._first.insert(0, self._first.pop(place))
                return self._read(template, match, text)
        if len(text) > _MOST_CHARACTERS or "\x1b" in text:
            return self._parser(text)
        return self._other(text)

    def parse_as(self, shape: Shape, text: str) -> Meaning | None:
        """The same of a line that is likely of this shape."""
        for template in shape.templates:
            match = template.match(text)
            if match is None:
                continue
            if template.unchecked:
                break
            try:
                meaning = template.meaning(match)
            except ValueError:
                break
            self.latest = shape
            return meaning
        return self.parse(text)

    def _other(self, text: str) -> Meaning | None:
        """A line that none of the templates of the last lines fits."""
        shape = _BLANKS.sub("  ", _COARSE.sub("0", text))
        known = self._known.get(shape)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._forget()
            known = self._known[shape] = Shape()
        known.seen += 1
        for template in known.templates:
            match = template.match(text)
            if match is not None:
                self._first = [template, *self._first[: _TRIED_FIRST - 1]]
                return self._read(template, match, text)
        if known.seen > _SEEN_BEFORE and known.attempts < _MOST_ATTEMPTS:
            known.attempts += 1
            learnt = _learnt(text, self._parser)
            if learnt is not None:
                known.learn(learnt)
        return self._parser(text)

    def _read(self, template: Template, match: re.Match[str], text: str) -> Meaning | None:
        try:
            meaning = template.meaning(match)
        except ValueError:
            return self._parser(text)
        if template.unchecked:
            said = self._parser(text)
            template.unchecked -= 1
            if not _same(meaning, said):
                self._give_up(template)
            return said
        self.latest = template.shape
        return meaning

    def _forget(self) -> None:
        """Shapes that were seen and not learnt; all where most are learnt."""
        self._known = {text: shape for text, shape in self._known.items() if shape.templates}
        if len(self._known) * 2 > _MOST_KNOWN:
            self._known = {}

    def _give_up(self, template: Template) -> None:
        self._first = [other for other in self._first if other is not template]
        for shape in self._known.values():
            shape.templates = [other for other in shape.templates if other is not template]


def _is_part(text: str, token: re.Match[str]) -> bool:
    """Whether digits stand beside the number, with only a joint between."""
    start, end = token.span()
    before = text[max(0, start - 2) : start]
    after = text[end : end + 2]
    return (
        (len(before) == 2 and before[1] in _JOINTS and before[0].isdigit())
        or (len(after) == 2 and after[0] in _JOINTS and after[1].isdigit())
        or after == "%|"  # of a progress bar
    )


def _learnt(text: str, parser: Parser) -> Template | None:
    """The template of a line; None if its meaning depends on more than its numbers."""
    return _asked(text, parser, ANY, len(_SPELT)) or _asked(text, parser, _PLAIN, _PLAINLY)


def _asked(text: str, parser: Parser, numbers: str, spellings: int) -> Template | None:
    """The template, if the parser takes numbers in so many spellings for what they are."""
    tokens = list(_TOKEN.finditer(text))
    first = parser(text)
    pieces = [text[a:b] for a, b in _between(text, tokens)]
    match = re.compile(_pattern(text, pieces, tokens, numbers)).fullmatch
    answers: list[_Answer] = []
    for words in _probes(text, tokens, spellings) if tokens else [[]]:
        probe = "".join(_woven(pieces, words))
        meaning = parser(probe)
        if match(probe) is None:
            return None
        if meaning is None or first is None:
            if meaning is not first:
                return None
            continue
        if meaning[0] != first[0] or meaning[1].keys() != first[1].keys():
            return None
        answers.append(([float(word) for word in words], meaning[1]))
    template = Template(match, None) if first is None else _told_by(first, answers, match)
    if template is not None:
        template.patterns = [_number_like(text, token, numbers) for token in tokens]
    return template


def _told_by(
    first: Meaning, answers: Sequence[_Answer], match: Callable[[str], re.Match[str] | None]
) -> Template | None:
    """Which number is told under which key, what it is multiplied with, and what never changes."""
    groups: dict[Hashable, int] = {}
    scaled: dict[Hashable, float] = {}
    fixed: _Numbers = {}
    for key, value in first[1].items():
        if all(_equal(numbers[key], value) for _, numbers in answers):
            fixed[key] = value
            continue
        found = _place(key, answers)
        if found is None:
            return None
        groups[key], factor = found
        if factor != 1.0:
            scaled[key] = factor
    return Template(match, first[0], tuple(groups), tuple(groups.values()), scaled, fixed)


def _place(key: Hashable, answers: Sequence[_Answer]) -> tuple[int, float] | None:
    """The number that every answer has under the key, and its factor."""
    for factor in _FACTORS:
        for place in range(len(answers[0][0])):
            if all(_equal(values[place] * factor, numbers[key]) for values, numbers in answers):
                return place + 1, factor
    return None


def _between(text: str, tokens: Sequence[re.Match[str]]) -> Iterator[tuple[int, int]]:
    position = 0
    for token in tokens:
        yield position, token.start()
        position = token.end()
    yield position, len(text)


def _woven(pieces: Sequence[str], words: Sequence[str]) -> Iterator[str]:
    """The line with other numbers; those that stand in columns with other padding too."""
    for place, piece in enumerate(pieces):
        word = words[place] if place < len(words) else ""
        if place and piece.startswith("  "):
            yield " " * (len(words[place - 1]) % 5)
        yield piece
        if word and piece.endswith("  "):
            yield " " * (len(word) % 7)
        yield word


def _probes(text: str, tokens: Sequence[re.Match[str]], spellings: int) -> Iterator[list[str]]:
    """Other numbers for the same line, in every spelling; the first are all different."""
    for index in range(spellings):
        yield [
            _spelt(text, token, place, index) for place, token in enumerate(tokens, start=index + 3)
        ]


def _spelt(text: str, token: re.Match[str], place: int, index: int) -> str:
    if token["int"] is None:
        form = _SPELT[index % len(_SPELT)]
        return form.format(place + 1, f"{place * 7919 % 9973:04d}7", place % 9 + 1)
    if _is_part(text, token):
        size = len(token[0])
        return f"{(place * 7919 + index * 31) % 10**size:0{size}d}"
    size = _DIGITS[(index + 2) % len(_DIGITS)]
    return str(10 ** (size - 1) + place * 17 % (9 * 10 ** (size - 1)))


def _pattern(
    text: str, pieces: Sequence[str], tokens: Sequence[re.Match[str]], numbers: str
) -> str:
    parts: list[str] = []
    for place, piece in enumerate(pieces):
        inner = piece
        if place and piece.startswith("  ") and piece.strip(" "):
            inner = inner.lstrip(" ")
            parts.append(" {2,48}")
        if place < len(tokens) and piece.endswith("  "):
            parts += (re.escape(inner.rstrip(" ")), " {2,48}")
        else:
            parts.append(re.escape(inner))
        if place < len(tokens):
            parts.append(_number_like(text, tokens[place], numbers))
    return "".join(parts)


def _number_like(text: str, token: re.Match[str], numbers: str) -> str:
    if token["int"] is None:
        return numbers
    return rf"([0-9]{{{len(token[0])}}})" if _is_part(text, token) else _INTS


def _same(a: Meaning | None, b: Meaning | None) -> bool:
    if a is None or b is None:
        return a is b
    if a[0] != b[0] or a[1].keys() != b[1].keys():
        return False
    return all(_equal(value, b[1][key]) for key, value in a[1].items())


def _equal(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
