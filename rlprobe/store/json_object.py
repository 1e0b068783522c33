"""The JSON objects of a run directory: read within limits, each field as what it should be."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlprobe.numbers import size
from rlprobe.store import admission, checksum, limits
from rlprobe.store.event_data import nested_at_most

_EDITED = (
    f'does not match its checksum: damaged, or changed by hand (then delete its "{checksum.KEY}")'
)
_MOST_TEXT = 100_000  # characters of a field


class ObjectError(ValueError):
    """A file holds no object that can be used; the message says why."""


def read(path: Path, root: Path) -> dict[str, Any]:
    """The object in a file.

    Raises:
        FileNotFoundError: nothing is there.
        ObjectError: no file, too large or deep, no JSON object, or not as it was written.
    """
    content = _content(path, root)
    try:
        raw = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        raise ObjectError("torn, or no JSON") from None
    if not isinstance(raw, dict):
        raise ObjectError("no JSON object")
    if not limits.lifted() and not nested_at_most(raw, limits.MOST_NESTING):
        raise ObjectError("nested deeper than is read")
    if checksum.json_holds(content) is False:
        raise ObjectError(_EDITED)
    return raw


def _content(path: Path, root: Path) -> bytes:
    try:
        with admission.open_regular(path, root) as file:
            content = file.read(limits.MOST_JSON + 1) if not limits.lifted() else file.read()
    except admission.NotAdmittedError as error:
        raise ObjectError(str(error)) from error
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ObjectError(f"cannot be read: {error.strerror or error}") from error
    if len(content) > limits.MOST_JSON and not limits.lifted():
        raise ObjectError(f"larger than {size(limits.MOST_JSON)}. {limits.HINT}")
    return content


class Fields:
    """The fields of an object; one that is not what it should be counts as not told.

    Attributes:
        unfit: names of those that were.
    """

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw
        self.unfit: list[str] = []

    def _unless(self, fits: bool, name: str) -> bool:
        if not fits and self._raw.get(name) is not None:
            self.unfit.append(name)
        return fits

    def text(self, name: str, default: str | None = None) -> str | None:
        """A text."""
        value = self._raw.get(name)
        fits = isinstance(value, str) and len(value) <= _MOST_TEXT
        return value if self._unless(fits, name) else default

    def count(self, name: str, default: int, *, least: int = 0, most: int = 2**53) -> int:
        """A whole number from `least` to `most`."""
        value = self._raw.get(name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        fits = whole and least <= value <= most
        return int(value) if self._unless(fits, name) and value is not None else default

    def number(self, name: str, default: float = math.nan) -> float:
        """A finite number."""
        value = self._raw.get(name)
        known = isinstance(value, int | float) and not isinstance(value, bool)
        fits = known and abs(value) < 1e300
        return float(value) if self._unless(fits, name) and value is not None else default

    def object(self, name: str) -> dict[str, Any]:
        """An object."""
        value = self._raw.get(name)
        return value if self._unless(isinstance(value, dict), name) and value else {}

    def list(self, name: str) -> list[Any]:
        """A list."""
        value = self._raw.get(name)
        return value if self._unless(isinstance(value, list), name) and value else []

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._raw.get(name)
        return value if self._unless(isinstance(value, bool), name) else default
