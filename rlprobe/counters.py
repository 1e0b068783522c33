"""Names of counters: what counts steps, samples or time, and measures nothing."""

from __future__ import annotations

import functools
import re

from rlprobe import schema

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OTHER = re.compile(r"[^0-9a-z]+")


@functools.lru_cache(maxsize=4096)
def is_counter(key: str) -> bool:
    """Whether a name counts steps, samples, tokens, epochs, time …, and measures nothing."""
    return key in schema.step_keys().counters or counts(key)


def counts(key: str) -> bool:
    """The same, for names that no list has."""
    if rank(key) is not None:
        return True
    known = schema.step_keys()
    folder, _, last = key.rpartition("/")
    words = normal(last).split("_")
    if not known.counted.intersection(words):
        return False
    if normal(folder) in known.other_folders and len(words) == 1 and not last.endswith("s"):
        return False  # `time/step` is how long one takes; `time/episodes` is how many there were
    return all(word in known.counted or word in known.counted_how for word in words)


@functools.lru_cache(maxsize=4096)
def rank(name: str) -> tuple[int, int] | None:
    """How well a name counts steps, the lower the better; None if it is no counter that is known.

    A counter below a folder comes after the plain one.
    """
    known = schema.step_keys()
    plain = normal(name)
    if name.startswith("_") and f"_{plain}" in known.ranking:
        return known.ranking[f"_{plain}"], 0
    if plain in known.ranking:
        return known.ranking[plain], 0
    folder, _, last = name.rpartition("/")
    if not folder or "/" in folder or normal(folder) in known.other_folders:
        return None
    below = known.ranking.get(normal(last))
    return None if below is None else (below, 1)


def normal(name: str) -> str:
    """In lower case, with `_` for what is neither letter nor digit and between humps."""
    return _OTHER.sub("_", _HUMP.sub("_", name).lower()).strip("_")
