"""The JSON objects of a run directory: read within limits, each field as what it should be."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlprobe.numbers import size
from rlprobe.store import admission, checksum, limits
from rlprobe.store.event_data import nested_at_most

_EDITED = (
    f'does not match its checksum: damaged, or changed by hand (then delete its "{checksum.KEY}")'
)
_MOST_TEXT = 100_000  # characters of a field
_LARGEST = 1e300  # a whole number beyond is no double


class ObjectError(ValueError):
    """A file holds no object that can be used; the message says why."""


def read(path: Path, root: Path, *, unchanged: bool = True) -> dict[str, Any]:
    """The object in a file.

    Args:
        unchanged: whether it must match the checksum that it has.

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
    if unchanged and checksum.json_holds(content) is False:
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

    def _fitting(self, name: str, test: Callable[[Any], bool]) -> Any:
        value = self._raw.get(name)
        if value is None or test(value):
            return value
        self.unfit.append(name)
        return None

    def text(self, name: str) -> str | None:
        """A text."""
        value: str | None = self._fitting(name, _is_text)
        return value

    def count(self, name: str, least: int = 0, most: int = 2**53) -> int | None:
        """A whole number from `least` to `most`."""
        value: int | None = self._fitting(
            name, lambda number: _is_whole(number) and least <= number <= most
        )
        return value

    def number(self, name: str) -> float | None:
        """A finite number."""
        value: float | None = self._fitting(name, _is_finite)
        return value

    def members(self, name: str) -> dict[str, Any]:
        """An object."""
        return self._fitting(name, lambda value: isinstance(value, dict)) or {}

    def items(self, name: str) -> list[Any]:
        """A list."""
        return self._fitting(name, lambda value: isinstance(value, list)) or []

    def flag(self, name: str) -> bool | None:
        """True or false."""
        value: bool | None = self._fitting(name, lambda value: isinstance(value, bool))
        return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MOST_TEXT


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    return (_is_whole(value) or isinstance(value, float)) and abs(value) < _LARGEST
