"""Command lines without their secrets, word by word."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlprobe.redaction.content import of_hash, text
from rlprobe.redaction.names import NONE, level_of, names_hash
from rlprobe.redaction.options import VALUE_OPTIONS, expected, is_option
from rlprobe.redaction.shapes import MASK, is_harmless, looks_random

_SHORT = re.compile(r"-([A-Za-z])(.*)", re.DOTALL)


def words(command: Sequence[str]) -> list[str]:
    """A command line, word by word, without its secrets."""
    shown: list[str] = []
    expects = NONE
    name = ""
    program = command[0].rpartition("/")[2] if command else ""
    for place, word in enumerate(command):
        if expects and not is_option(word) and not is_harmless(word, expects):
            shown.append(MASK)
            expects = NONE
            continue
        expects = NONE
        if place == 0:
            shown.append(text(word))
            continue
        plain = of_hash(word) if names_hash(name) else _word(word, program)
        if "login" in command[max(place - 2, 0) : place] and looks_random(word, 1):
            plain = MASK
        elif (
            name in {"-u", "--user", "--proxy-user", "--userpwd"} and ":" in word and plain == word
        ):
            plain = _user(word, program, name)
        shown.append(plain)
        expects, name = expected(word), word
    return shown


def _word(word: str, program: str) -> str:
    name, equals, value = word.partition("=")
    if equals and re.fullmatch(r"[-+\w.@/:\[\]]+", name):
        if text(name) != name:
            return MASK
        if level := level_of(name):
            return word if is_harmless(value, level) else f"{name}={MASK}"
        if names_hash(name):
            return f"{name}={of_hash(value)}"
        return f"{name}={_word(value, program)}"
    short = _SHORT.fullmatch(word)
    if (
        short
        and not word.startswith("--")
        and len(word) > 4
        and _is_attached(short[1], short[2], program)
    ):
        return f"-{short[1]}{MASK}"
    return text(word)


def _is_attached(option: str, value: str, program: str) -> bool:
    """Whether a short option carries a secret: `-pS3cret`."""
    if option == "p" and program.startswith(("mysql", "mariadb", "sshpass")):
        return True
    if option not in VALUE_OPTIONS or re.search(r"[/=:.\s]", value):
        return False
    has_signs = bool(re.search(r"[A-Za-z]", value) and re.search(r"[^a-z_-]", value))
    return looks_random(value, 3) or (option == "p" and has_signs and not value[0].isdigit())


def _user(word: str, program: str, name: str) -> str:
    user, _, _ = word.partition(":")
    tells = name != "-u" or program in {"curl", "wget", "http", "https", "xh", "aria2c"}
    return f"{user}:{MASK}" if tells and "://" not in word else word
