"""An exception, or a dead program's last lines, as what is known of the failure."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from typing import Any

from rlprobe import schema

_FRAMES = 5
_FRAME = re.compile(r'File "[^"]+", line [0-9]+, in ')


def last_line(error: BaseException | str) -> str:
    """The line that names the failure, at most 500 characters."""
    if isinstance(error, str):
        return error.strip().splitlines()[-1][:500] if error.strip() else ""
    return "".join(traceback.format_exception_only(error)).strip()[:500]


def explained(error: BaseException | str) -> dict[str, Any]:
    """What is known of a failure: exception, tail of the traceback, meaning, what to try."""
    data = event_data(_lines(error))
    if isinstance(error, BaseException):
        data |= {"exception": type(error).__name__, "frames": _frames(error)}
    return data


def _frames(error: BaseException) -> list[str]:
    """Where it was raised, as a traceback says it: the last frames, whatever its message's length.

    The message may be longer than the tail of what is printed.
    """
    frames = traceback.extract_tb(error.__traceback__, limit=-_FRAMES)
    return [f'File "{item.filename}", line {item.lineno}, in {item.name}' for item in frames]


def event_data(tail: Sequence[str], telling: Sequence[str] | None = None) -> dict[str, Any]:
    """The data of a `crash` event: the last lines, and what they mean where that is known.

    Args:
        telling: the lines that may tell the cause; the tail unless given.
    """
    data: dict[str, Any] = {"tail": [line[:300] for line in tail[-20:]]}
    frames = [line.strip()[:300] for line in tail if _FRAME.search(line)]
    if frames:  # they may stand far before the last line: what is printed at the end comes late
        data["frames"] = frames[-_FRAMES:]
    known = schema.classify_failure(tail if telling is None else telling)
    if known is not None:
        failure, line = known
        data |= {"kind": failure.kind, "meaning": failure.meaning, "remedy": failure.remedy}
        data["line"] = line[:300]
    return data


def _lines(error: BaseException | str) -> list[str]:
    text = error if isinstance(error, str) else "".join(traceback.format_exception(error))
    return [line for line in text.splitlines() if line.strip()]
