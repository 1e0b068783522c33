"""The words of a Python: its own options, and what it runs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlprobe.commands.starts import Target

_PYTHON = re.compile(r"(python|pypy)(\d+(\.\d+)*)?[tdw]?")
_TAKE_A_WORD = ("--check-hash-based-pycs",)
# Which of Python's options keep a `sitecustomize` on PYTHONPATH out, and why.
CLOSES = {
    "I": "-I makes Python ignore PYTHONPATH",
    "E": "-E makes Python ignore PYTHONPATH",
    "S": "-S makes Python start without `site`",
}


def is_python(name: str) -> bool:
    """Whether a program's own name is that of a Python."""
    return _PYTHON.fullmatch(name) is not None


def parse(words: Sequence[str]) -> tuple[list[str], Target, list[str]]:
    """Python's own options, what it runs, and the arguments of that."""
    own: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word == "-" or not word.startswith("-"):
            break
        at += 1
        if word == "--":
            break
        if word.startswith("--"):
            own.append(word)
            if word in _TAKE_A_WORD:
                own += words[at : at + 1]
                at += 1
            continue
        flags, letter, value = _cluster(word)
        if letter and not value:
            value = words[at] if at < len(words) else ""
            at += 1
        own += [f"-{flags}"] if flags else []
        if letter in ("c", "m"):
            kind = "code" if letter == "c" else "module"
            return own, Target("code" if kind == "code" else "module", value), list(words[at:])
        own += [f"-{letter}", value] if letter else []
    return own, *_script(words[at:], own)


def _script(words: Sequence[str], own: Sequence[str]) -> tuple[Target, list[str]]:
    if words and words[0] != "-":
        return Target("script", words[0]), list(words[1:])
    shown = {"--version", "--help", "-V", "-VV", "-h", "-?", "--help-all"} & set(own)
    return Target("nothing" if shown else "stdin"), list(words[1:])


def _cluster(word: str) -> tuple[str, str, str]:
    """`-uIc` as flags without a value, the letter that takes one, and what stands behind it."""
    for place, letter in enumerate(word[1:], start=1):
        if letter in "cmWX":
            return word[1:place], letter, word[place + 1 :]
    return word[1:], "", ""


def closing(own: Sequence[str]) -> str:
    """Why the hook does not get in by these options; empty if it does."""
    letters = {letter for word in own if _is_cluster(word) for letter in word[1:]}
    return next((why for letter, why in CLOSES.items() if letter in letters), "")


def _is_cluster(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and word[1] not in "-WX"
