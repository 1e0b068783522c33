"""Command lines without their secrets, word by word."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlprobe.redaction.content import of_hash, text
from rlprobe.redaction.names import NONE, STRONG, level_of, names_hash
from rlprobe.redaction.options import VALUE_OPTIONS, expected, is_option
from rlprobe.redaction.shapes import MASK, is_harmless, looks_random

_SHORT = re.compile(r"-([A-Za-z])(.*)", re.DOTALL)
_FEWEST = 3  # characters of a secret
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish"})
_PIPED = re.compile(
    r"(\b(?:echo|printf)\s+(?:-n\s+)?[\"']?)([^\s\"'|]+)(?=[\"']?\s*\|[^|;&]*\blogin\b)"
)
_COMMANDS = re.compile(r"[^;&|\n()]+")
_SHELL_WORD = re.compile(r"""(?:[^\s"']|"(?:[^"\\]|\\.)*"|'[^']*')+""", re.DOTALL)
_USERS = frozenset(
    "-u --user --proxy-user --http-user --userpwd --userpass --user-pass --login".split()  # noqa: SIM905
)
_FETCHERS = frozenset({"curl", "wget", "http", "https", "xh", "aria2c"})


def words(command: Sequence[str]) -> list[str]:
    """A command line, word by word, without its secrets."""
    shown: list[str] = []
    expects, name = NONE, ""
    program = next((word for word in command if "=" not in word), "").rpartition("/")[2]
    for place, word in enumerate(command):
        if expects and not is_option(word) and not is_harmless(word, expects):
            shown.append(MASK)
            expects, name = NONE, ""
            continue
        before = command[:place]
        shown.append(_shown(word, name, program, before))
        expects, name = (expected(word) if place else NONE), word
        if word == "-p" and (program == "sshpass" or "login" in before):
            expects = STRONG
    return shown


def _shown(word: str, name: str, program: str, before: Sequence[str]) -> str:
    if names_hash(name):
        return of_hash(word)
    if _SHELLS.intersection(part.rpartition("/")[2] for part in before) and name.endswith("c"):
        return _script(word)
    if "login" in before[-2:] and looks_random(word, 1):
        return MASK
    plain = _word(word, program)
    if name in _USERS and ":" in word and plain == word and "://" not in word:
        tells = name != "-u" or program in _FETCHERS
        return f"{word.partition(':')[0]}:{MASK}" if tells else word
    return plain


def _script(content: str) -> str:
    """A shell's script: each of its commands by its words, and the whole as a text."""
    content = _PIPED.sub(lambda m: m[1] + (m[2] if m[2].startswith("$") else MASK), content)
    parts: list[str] = []
    at = 0
    for simple in _COMMANDS.finditer(content):
        spans = [match.span() for match in _SHELL_WORD.finditer(content, *simple.span())]
        spelled = [content[start:end] for start, end in spans]
        plain = [word.strip("\"'") for word in spelled]
        for (start, end), word, shown in zip(spans, plain, words(plain), strict=True):
            if shown != word:
                parts += (content[at:start], shown)
                at = end
    return text("".join((*parts, content[at:])))


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
    if short and not word.startswith("--") and _is_attached(short[1], short[2], program):
        return f"-{short[1]}{MASK}"
    return text(word)


def _is_attached(option: str, value: str, program: str) -> bool:
    """Whether a short option carries a secret: `-pS3cret`."""
    if option == "p" and value and program.startswith(("mysql", "mariadb", "sshpass")):
        return True
    if option not in VALUE_OPTIONS or len(value) < _FEWEST or re.search(r"[/=:.\s]", value):
        return False
    has_signs = bool(re.search(r"[A-Za-z]", value) and re.search(r"[^a-z_-]", value))
    return looks_random(value, 3) or (option == "p" and has_signs and not value[0].isdigit())
