"""Which rows are those of an evaluation, by what they say of themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlprobe.counters import is_counter

# Keys under which rows of several kinds say which one they are.
KIND_KEYS = (
    *("type", "kind", "mode", "split", "phase", "stage", "set", "subset", "partition"),
    *("eval", "is_eval"),
)
_WORD = re.compile(r"(?:eval|val|valid|validation|evaluation|evaluate|test|dev)(?:[_\W].*)?", re.I)


def of_evaluation(name: str) -> bool:
    """Whether a name is that of an evaluation: `eval`, `val_loss`, `test/reward`."""
    return bool(_WORD.fullmatch(name))


def is_evaluation(row: Mapping[str, Any]) -> bool:
    """Whether a row says that it is one of an evaluation: `"mode": "eval"`."""
    for key in KIND_KEYS:
        said = row.get(key)
        if said is True and of_evaluation(key.removeprefix("is_")):
            return True
        if isinstance(said, str) and not of_evaluation(key) and of_evaluation(said):
            return True
    return False


def named(key: str) -> str:
    """The key of a metric of an evaluation, named as such."""
    plain = is_counter(key) or of_evaluation(key) or key in KIND_KEYS
    return key if plain else f"eval/{key}"


def marked(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of an evaluation with all its metrics named as such."""
    return {named(key): value for key, value in row.items()}
