"""Names that the vocabulary does not have: which known one is near, which are worth a look first.

Near are names that share most of their words: `learner_stats/vf_explained_var` is near to
`explained_variance`. It is a hint for people and nothing else: no value is read by it.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlprobe import _visible, naming, schema

_NEAR = 0.6  # of the words of both names that must be the same
_FOLDER = 0.25  # weight of a word that stands before the last slash
_FOLDERS = 1.0  # at most, of all of them
_BEFORE = 12  # characters at least that are shown before what an excerpt is about
_SHORTEST = 4  # letters of a word in which a slip of one letter is looked for


@dataclass(frozen=True, slots=True)
class _Known:
    """A name that is known: its words with their weights, its statistic, its metric."""

    words: Mapping[str, float]
    statistic: frozenset[str]
    metric: str


@dataclass(frozen=True, slots=True, eq=False)
class _Index:
    """Known names by their words, and how words may be misspelt."""

    by_word: Mapping[str, Sequence[_Known]]
    slips: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class _Words:
    """What `schemas/words.toml` says of words: other spellings, and the lists there."""

    same: Mapping[str, str]
    idle: frozenset[str]
    statistics: frozenset[str]
    qualifiers: frozenset[str]
    settings: frozenset[str]
    apart: frozenset[str]
    strong: frozenset[str]
    telling: frozenset[str]
    times: frozenset[str]
    plain: frozenset[str]


@functools.cache
def _words() -> _Words:
    raw = tomllib.loads(schema.text("words.toml"))
    same = {other: word for word, others in raw.pop("same").items() for other in others}
    lists = {name: frozenset(words) for name, words in raw.items()}
    return _Words(
        same,
        idle=lists["idle"],
        statistics=lists["statistics"],
        qualifiers=lists["statistics"] | lists["qualifiers"],
        settings=lists["settings"],
        apart=lists["settings"] | lists["apart"],
        strong=lists["strong"],
        telling=lists["strong"] | lists["telling"],
        times=lists["times"],
        plain=lists["times"] | lists["plain"],
    )


def nearest(name: str, framework: str | None = None) -> str | None:
    """The metric of the vocabulary whose name, or whose name in a framework, is near; else None."""
    index = _index(framework)
    weights = _weights(known for word in _split(name) for known in _spelt(word, index))
    if not _words().apart.isdisjoint(weights):
        return None
    statistic = _statistic(weights)
    sharing = {id(one): one for word in weights for one in index.by_word.get(word, ())}
    scores: dict[str, float] = {}
    for one in sharing.values():
        if one.statistic == statistic:
            scores[one.metric] = max(_likeness(weights, one.words), scores.get(one.metric, 0.0))
    best = max(scores.values(), default=0.0)
    nearest_ones = sorted(metric for metric, score in scores.items() if score == best)
    return nearest_ones[0] if best >= _NEAR and len(nearest_ones) == 1 else None


def telling_first(names: Iterable[str]) -> list[str]:
    """The names in the order in which they are worth a look.

    First those that speak of a loss, a reward, a gradient and the like; clocks, counters and
    settings come last. Of names that differ only in numbers (`layers.3.norm`) the first one stands
    before the others of its class.
    """
    seen: set[str] = set()
    ordered = []
    for name in sorted(names):
        pattern = re.sub(r"\d+", "#", name)
        ordered.append((_class(name), pattern in seen, name))
        seen.add(pattern)
    return [name for _, _, name in sorted(ordered)]


def tells_something(text: str) -> bool:
    """Whether a text speaks of a loss, a reward, a gradient and the like."""
    return not _words().telling.isdisjoint(word for word, _ in _split(text))


def excerpt(text: str, limit: int) -> str:
    """At most `limit` visible characters of a line: those about the first metric it speaks of."""
    text = text.strip()
    at = next((m.start() for m in re.finditer("[A-Za-z]{2,}", text) if tells_something(m[0])), 0)
    if len(text) <= limit or at < limit // 2:
        return _visible.start(text, limit)
    begin = text.rfind(" ", 0, at - _BEFORE) + 1 or at
    begin = begin if 3 * (at - begin) <= 2 * limit else at
    return f"…{_visible.start(text[begin:].lstrip(), limit - 1)}"


def _class(name: str) -> int:
    words = {word for word, _ in _split(name)}
    known = _words()
    if not known.settings.isdisjoint(words):
        return 2
    if known.times.isdisjoint(words) and not known.strong.isdisjoint(words):
        return 0
    if not known.plain.isdisjoint(words):
        return 2 if known.telling.isdisjoint(words) else 1
    return 1 if known.telling.isdisjoint(words) else 0


def _split(name: str) -> Iterator[tuple[str, float]]:
    """The words of a name with their weights: those before the last slash count little."""
    same = _words().same
    folder, _, last = name.rpartition("/")
    if not re.search("[A-Za-z]{2}", last):
        folder, last = "", name
    for part, weight in ((folder, _FOLDER), (last, 1.0)):
        parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", part[:400])
        for word in re.findall(r"p\d\d(?!\d)|[a-z]{2,}", parted.lower()):
            yield "percentile" if word[1].isdigit() else same.get(word, word), weight


def _weights(words: Iterable[tuple[str, float]]) -> dict[str, float]:
    weights: dict[str, float] = {}
    for word, weight in words:
        if word not in _words().idle:
            weights[word] = max(weight, weights.get(word, 0.0))
    folders = sum(weight for weight in weights.values() if weight < 1)
    if folders > _FOLDERS:
        shrunk = _FOLDERS / folders
        return {word: w if w == 1 else w * shrunk for word, w in weights.items()}
    return weights


def _statistic(words: Iterable[str]) -> frozenset[str]:
    return _words().statistics.intersection(words) - {"mean"}


def _likeness(name: Mapping[str, float], known: Mapping[str, float]) -> float:
    """How much of the words of both is the same; 0 where that is a qualifier alone."""
    common = name.keys() & known.keys()
    if common <= _words().qualifiers:
        return 0.0
    same = sum(min(name[word], known[word]) for word in common)
    return 2 * same / (sum(name.values()) + sum(known.values()))


def _spelt(word: tuple[str, float], index: _Index) -> Iterator[tuple[str, float]]:
    """A word as known ones are spelt: with a letter more, less or another, or two run together."""
    text, weight = word
    if text in index.by_word or len(text) < _SHORTEST:
        yield word
        return
    same = _words().same
    for at in range(2, len(text) - 1):
        parts = [same.get(part, part) for part in (text[:at], text[at:])]
        if all(part in index.by_word for part in parts):
            yield from ((part, weight) for part in parts)
            return
    known = (index.slips[slip] for slip in _slips(text) if slip in index.slips)
    yield min(known, default=text), weight


def _slips(word: str) -> set[str]:
    """A word, and what is left of it without one of its letters."""
    return {word, *(word[:at] + word[at + 1 :] for at in range(len(word)))}


@functools.cache
def _index(framework: str | None) -> _Index:
    """The vocabulary, the plain names, and those of one framework."""
    names = {name: name for name in schema.metrics() if not name.endswith("/*")}
    tables = dict.fromkeys(("generic", framework or "generic"))
    for table in (naming.every()[one] for one in tables if one in naming.every()):
        for key, metric in table.exact.items():
            if schema.metric(metric) is not None:
                names.setdefault(key, metric)
    by_word: dict[str, list[_Known]] = {}
    for name, metric in names.items():
        words = dict.fromkeys(_weights(_split(name)), 1.0)
        known = _Known(words, _statistic(_weights(_split(metric))), metric)
        for word in words:
            by_word.setdefault(word, []).append(known)
    spelt = sorted(word for word in by_word if len(word) > _SHORTEST)
    slips = {slip: word for word in reversed(spelt) for slip in _slips(word)}
    return _Index(by_word, slips)
