"""What a user wants taken out of rollouts before anything of their text is stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rlprobe import redaction
from rlprobe.errors import UsageError

Redact = Callable[[str], str] | Sequence[str | re.Pattern[str]]  # a text is one: `secrets`


def redactor(redact: Redact | None) -> Callable[[str], str] | None:
    """The function that takes out what is meant; None if nothing is.

    Args:
        redact: the function itself, patterns, whose matches become `***`, or `secrets` for what
            looks like tokens and passwords.

    Raises:
        UsageError: it is neither, or a pattern is none.
    """
    if redact is None or callable(redact):
        return redact
    if redact == "secrets":
        return redaction.text
    if isinstance(redact, str):
        raise UsageError(
            f"Couldn't redact by '{redact}': it is no function, no list of patterns, not 'secrets'",
            hint="Write one pattern as a list of one.",
        )
    try:
        patterns = [re.compile(pattern) for pattern in redact]
    except (re.error, TypeError) as error:
        raise UsageError(f"Couldn't redact by '{redact}': {error}") from error

    def take_out(text: str) -> str:
        for pattern in patterns:
            text = pattern.sub(redaction.MASK, text)
        return text

    return take_out
