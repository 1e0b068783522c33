"""How frameworks name the metrics: the alias files of `schemas/`, each read when asked for."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rlprobe import schema

Logged = tuple[Any, Any]  # values, and whether each was logged
_UNKNOWN = "generic"
# Logs under the names of another, and is told apart from it by what it does not log.
_SAME_NAMES = {"transformers": ("trl", "Hugging Face Trainer")}
_MOST_KEYS = 500  # looked at to tell the framework
_MOST_PLANS = 1_000  # of sets of keys, per framework
_LIST = re.compile(r"^(\w+) *= *(\[[^\]]*\])", re.MULTILINE)
_FILE = "aliases/{}.toml"
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # in `MeanReward`
_OTHER = re.compile(r"[^0-9a-z]+")
_SPANS = ("_step", "_epoch")  # what Lightning puts behind the name of what it logs both ways


@dataclass(frozen=True, slots=True)
class Naming:
    """What becomes of one key: its canonical name, and how its values are to be read.

    Attributes:
        sentinel: the logged value that stands for "not measured"; NaN may.
        transform: factor and offset that turn a logged value into the metric's.
    """

    key: str
    name: str
    sentinel: float | None
    transform: tuple[float, float] | None


@dataclass(frozen=True, slots=True, eq=False)
class Aliases:
    """How one framework names the metrics.

    Attributes:
        detect: keys that give the framework away; one that ends in `*` stands for every key that
            starts so.
        sentinels: values that stand for "not measured", by the framework's key.
        transforms: factor and offset that turn a logged value into the metric's, by the key.
        witnesses: keys that the framework leaves out of a row when their value is not finite, each
            with the key that shows that the row is there.
        normalise: whether case, spaces and punctuation make no difference.
        inherits: whether the plain names count as well, because users add their own metrics.
        raw_patterns: the patterns as they are written in the file.
    """

    framework: str
    title: str
    detect: tuple[str, ...]
    strip_prefixes: tuple[str, ...]
    exact: Mapping[str, str]
    patterns: tuple[tuple[re.Pattern[str], str], ...]
    keep: frozenset[str]
    sentinels: Mapping[str, float]
    transforms: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    witnesses: Mapping[str, str] = field(default_factory=dict)
    normalise: bool = False
    inherits: bool = False
    raw_patterns: Mapping[str, str] = field(default_factory=dict)
    _plans: dict[tuple[str, ...], tuple[Naming, ...]] = field(default_factory=dict, repr=False)

    def apply(self, columns: Mapping[str, Logged]) -> dict[str, Logged]:
        """Logged columns as metrics: sentinels out, in the metric's unit, under canonical names.

        A column is its values and whether each was logged: two arrays of one length, or a number
        and a bool. A key without a metric keeps its name. Of two keys that mean the same, the
        better one counts where it was logged.
        """
        named: dict[str, Logged] = {}
        for key in self.plan(tuple(columns)):
            values, logged = columns[key.key]
            if key.sentinel is not None:
                logged = logged & _differs(values, key.sentinel)
            if key.transform is not None:
                values = values * key.transform[0] + key.transform[1]
            if key.name in named:
                import numpy as np

                worse, had = named[key.name]
                values, logged = np.where(logged, values, worse), logged | had
            named[key.name] = (values, logged)
        return named

    def plan(self, keys: tuple[str, ...]) -> tuple[Naming, ...]:
        """What becomes of each of these keys, of those that mean the same the best one last."""
        if keys not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            ranks = {name: rank for rank, name in enumerate(self.exact)}
            # Of `KL` and `KL%`, the one in percent is a share of something else.
            ordered = sorted(
                keys, key=lambda key: (ranks.get(self.bare(key), -1), "%" not in key, key)
            )
            names = frozenset(keys)
            self._plans[keys] = tuple(
                Naming(key, key, None, None) if self._tells_less(key, names) else self.naming(key)
                for key in ordered
            )
        return self._plans[keys]

    def _tells_less(self, key: str, names: frozenset[str]) -> bool:
        """Whether a key is the other half of a pair: Lightning logs a value by step and by epoch.

        In training the steps tell more; an evaluation is one value per epoch.
        """
        ends = next((end for end in _SPANS if key.endswith(end)), None)
        if ends is None:
            return False
        stem = key.removesuffix(ends)
        of_evaluation = (self.canonical(key) or "").startswith("eval/")
        if ends == "_step":
            return of_evaluation and f"{stem}_epoch" in names
        return stem in names or (not of_evaluation and f"{stem}_step" in names)

    def naming(self, key: str) -> Naming:
        """What becomes of one key."""
        bare = self.bare(key)
        name = self.canonical(key) or key
        return Naming(key, name, self.sentinels.get(bare), self.transforms.get(bare))

    def canonical(self, key: str) -> str | None:
        """The canonical metric for a key of this framework; None if the vocabulary has none."""
        name = self.bare(key)
        if name in self.keep:
            return None
        known = self.own(name)
        return every()["generic"].canonical(name) if known is None and self.inherits else known

    def own(self, name: str) -> str | None:
        """The metric that this file itself has for a bare name."""
        known = self._listed(name) or _metric(name)
        if known or not self.normalise:
            return known
        plain = dict.fromkeys((normal(name), normal(_HUMP.sub("_", name))))
        names = (self._listed(stem) or _metric(stem) for it in plain for stem in _stems(it))
        return next((name for name in names if name), None)

    def _listed(self, name: str) -> str | None:
        if name in self.exact:
            return self.exact[name]
        if not self.patterns:
            return None
        matches = ((pattern.fullmatch(name), target) for pattern, target in self.patterns)
        return next((self._from_pattern(m, target) for m, target in matches if m), None)

    def bare(self, key: str) -> str:
        """A key without the prefix that a tracker put before it."""
        if key in self.exact:
            return key
        for prefix in self.strip_prefixes:
            if key.startswith(prefix):
                return key[len(prefix) :]
        return key

    def _from_pattern(self, match: re.Match[str], target: str) -> str:
        if "{name}" not in target:
            return target
        inner = match["name"]
        if target.startswith("eval/"):
            inner = self.canonical(inner) or inner
        return target.replace("{name}", inner)


def _stems(plain: str) -> list[str]:
    """A name, and without the span that it is of."""
    return [plain, *(plain.removesuffix(end) for end in _SPANS if plain.endswith(end))]


def normal(name: str) -> str:
    """A name in lower case, with `_` for everything that is neither letter nor digit."""
    return _OTHER.sub("_", name.lower()).strip("_")


def _aliases(raw: Mapping[str, Any]) -> Aliases:
    return Aliases(
        framework=raw["framework"],
        title=raw["title"],
        detect=tuple(raw.get("detect", ())),
        strip_prefixes=tuple(raw.get("strip_prefixes", ())),
        exact=raw["aliases"],
        patterns=tuple((_pattern(k), target) for k, target in raw.get("patterns", {}).items()),
        keep=frozenset(raw.get("keep", {}).get("keys", ())),
        sentinels=raw.get("sentinels", {}),
        transforms={key: _transform(how) for key, how in raw.get("transform", {}).items()},
        witnesses=raw.get("absent_when_nonfinite", {}),
        normalise=raw.get("normalise", False),
        inherits=raw.get("inherits", False),
        raw_patterns=raw.get("patterns", {}),
    )


def _pattern(key: str) -> re.Pattern[str]:
    """`{name}` is what the target takes over, `*` is anything."""
    return re.compile(re.escape(key).replace(r"\{name\}", "(?P<name>.+)").replace(r"\*", ".+"))


def _metric(name: str) -> str | None:
    return name if schema.metric(name) else None


def _differs(values: Any, sentinel: float) -> Any:
    """Where values are not the sentinel, which may be NaN."""
    return values == values if sentinel != sentinel else values != sentinel  # noqa: PLR0124


def _transform(how: Mapping[str, float]) -> tuple[float, float]:
    return how.get("sign", 1) * how.get("factor", 1.0), how.get("offset", 0.0)


class _Every(Mapping[str, Aliases]):
    """All alias files, by framework."""

    def __init__(self) -> None:
        self._names = schema.frameworks()
        self._read: dict[str, Aliases] = {}

    def __getitem__(self, framework: str) -> Aliases:
        if framework in _SAME_NAMES and framework not in self._read:
            like, title = _SAME_NAMES[framework]
            self._read[framework] = replace(self[like], framework=framework, title=title)
        elif framework not in self._names and framework not in self._read:
            raise KeyError(framework)
        if framework not in self._read:
            raw = tomllib.loads(schema.text(_FILE.format(framework)))
            self._read[framework] = _aliases(raw)
        return self._read[framework]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@functools.cache
def every() -> Mapping[str, Aliases]:
    """Every alias file, by framework."""
    return _Every()


@functools.lru_cache(maxsize=16_384)
def anywhere(key: str) -> frozenset[str]:
    """The metrics that a name stands for, in whatever framework."""
    if not _may_be_known(key):
        return frozenset()
    names: set[str | None] = set()
    for table in every().values():
        bare = table.bare(key)
        if bare not in table.keep:
            names.add(table.own(bare) or (_generic(bare) if table.inherits else None))
    return frozenset(name for name in names if name)


@functools.lru_cache(maxsize=1_024)
def _generic(name: str) -> str | None:
    return every()["generic"].canonical(name)


def _may_be_known(key: str) -> bool:
    """Whether all words of a name are words of names, or it begins or ends as families do."""
    words, heads, tails = _vocabulary()
    humped = normal(_HUMP.sub("_", key))
    if words.issuperset(humped.split("_")) or words.issuperset(normal(key).split("_")):
        return True
    return key.startswith(heads) or humped.startswith(heads) or key.endswith(tails)


@functools.cache
def words() -> tuple[frozenset[str], frozenset[str]]:
    """All words of the names that some framework has for a metric, and those that are the last."""
    names = [name for table in every().values() for name in (*table.exact, *table.raw_patterns)]
    split = [normal(_HUMP.sub("_", name)).split("_") for name in (*names, *schema.metrics())]
    return _vocabulary()[0], frozenset(parts[-1] for parts in split)


@functools.cache
def prose() -> frozenset[str]:
    """Words of names that stand in prose and in code as well."""
    return frozenset(tomllib.loads(schema.text("words.toml"))["prose"])


@functools.cache
def _vocabulary() -> tuple[frozenset[str], tuple[str, ...], tuple[str, ...]]:
    """All words of names; how families begin, and how such end that begin with anything."""
    tables = every().values()
    patterns = [key for table in tables for key in (*table.raw_patterns, *schema.metrics())]
    names = [key for table in tables for key in (*table.exact, *table.strip_prefixes)]
    words: set[str] = {span.strip("_") for span in _SPANS}
    for name in (*names, *patterns):
        words.update(normal(name).split("_"), normal(_HUMP.sub("_", name)).split("_"))
    families = {re.split(r"[*{]", key)[0] for key in patterns if "*" in key or "{" in key}
    prefixed = {
        f"{before}{head}" for t in tables for before in t.strip_prefixes for head in families
    }
    tails = {key.rpartition("*")[2] for key in patterns if key.startswith("*")}
    heads = {*families, *prefixed, *map(normal, families)} - {""}
    return frozenset(words), tuple(heads), tuple(tails)


class LiveAliases:
    """The aliases of the framework that all keys so far give away, while a run goes on.

    Args:
        framework: the one that is known; None where the keys are to tell.

    Attributes:
        framework: whose aliases count; `generic` until one is known.
    """

    def __init__(self, framework: str | None = None) -> None:
        self.framework = framework or _UNKNOWN
        self._is_undecided = framework is None
        self._keys: set[str] = set()

    def of(self, keys: Iterable[str]) -> Aliases:
        """Those for a row or table that has these keys."""
        if self._is_undecided and not self._keys.issuperset(keys):
            self._keys.update(keys)
            self.framework = detect_framework(self._keys) or _UNKNOWN
            self._is_undecided = self.framework == _UNKNOWN and len(self._keys) < _MOST_KEYS
        return every()[self.framework]

    def algorithm(self) -> str | None:
        """The algorithm that the keys so far give away, if they do."""
        return schema.detect_algorithm(self._keys)


def detect_framework(keys: Iterable[str]) -> str | None:
    """The framework whose tell-tale keys occur most often among these keys, if any does.

    Of two with as many, the one that knows more of the keys.
    """
    present = set(keys)
    scores = {name: _score(_head(name), present) for name in schema.frameworks()}
    most = max(scores.values(), default=0)
    if not most:
        return None
    best = [name for name, score in scores.items() if score == most]
    known = {name: sum(map(bool, map(every()[name].canonical, present))) for name in best}
    return max(best, key=known.__getitem__)


@functools.cache
def _head(framework: str) -> Mapping[str, Any]:
    """The lists at the start of an alias file, before its tables, which are the most of it.

    All files are looked at for each log: lists as they are usually written are read as JSON, which
    is many times as fast as TOML.
    """
    text, _, _ = schema.text(_FILE.format(framework)).partition("\n[")
    try:
        return {match[1]: json.loads(match[2]) for match in _LIST.finditer(text)}
    except ValueError:
        return tomllib.loads(text)


def _score(head: Mapping[str, Any], present: set[str]) -> int:
    score = 0
    for key in head.get("detect", ()):
        wanted = [prefix + key for prefix in ("", *head.get("strip_prefixes", ()))]
        if key.endswith("*"):
            starts = tuple(name[:-1] for name in wanted)
            score += any(name.startswith(starts) for name in present)
        else:
            score += any(name in present for name in wanted)
    return score
