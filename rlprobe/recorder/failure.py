"""An exception, or a dead program's last lines, as what is known of the failure."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

from rlprobe import schema


def last_line(error: BaseException | str) -> str:
    """The line that names the failure, at most 500 characters."""
    if isinstance(error, str):
        return error.strip().splitlines()[-1][:500] if error.strip() else ""
    return "".join(traceback.format_exception_only(error)).strip()[:500]


def explained(error: BaseException | str) -> dict[str, Any]:
    """What is known of a failure: exception, tail of the traceback, meaning, what to try."""
    named = {"exception": type(error).__name__} if isinstance(error, BaseException) else {}
    return event_data(_lines(error)) | named


def event_data(tail: Sequence[str], telling: Sequence[str] | None = None) -> dict[str, Any]:
    """The data of a `crash` event: the last lines, and what they mean where that is known.

    Args:
        telling: the lines that may tell the cause; the tail unless given.
    """
    data: dict[str, Any] = {"tail": [line[:300] for line in tail[-20:]]}
    known = schema.classify_failure(tail if telling is None else telling)
    if known is not None:
        failure, line = known
        data |= {"kind": failure.kind, "meaning": failure.meaning, "remedy": failure.remedy}
        data["line"] = line[:300]
    return data


def _lines(error: BaseException | str) -> list[str]:
    text = error if isinstance(error, str) else "".join(traceback.format_exception(error))
    return [line for line in text.splitlines() if line.strip()]
