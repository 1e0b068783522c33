"""What stands beside an option of a command."""

from __future__ import annotations

import re

from rlprobe.redaction.names import NONE, WEAK, level_of

VALUE_OPTIONS = frozenset("ptkwPKW")  # short options that often carry one


def is_option(word: str) -> bool:
    """Whether a word of a command is the name of an option, with a value or without."""
    return bool(re.fullmatch(r"--[A-Za-z][\w.-]*(?:=.*)?|-[A-Za-z]", word, re.DOTALL))


def expected(word: str) -> int:
    """What a word says of the next one."""
    name, equals, value = word.partition("=")
    if equals:
        return level_of(name) if not value else NONE
    if re.fullmatch(r"-[A-Za-z]", word):
        return WEAK if word[1] in VALUE_OPTIONS else NONE
    if word.startswith("-"):
        return level_of(word)
    several = re.fullmatch(r"[A-Za-z]+(?:_[A-Za-z]+)+", word)
    return level_of(word) if several else NONE
