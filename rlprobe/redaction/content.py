"""Texts without their secrets: lines of output, a shell's script, JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlprobe.redaction.names import OF_A_HASH, STRONG, WEAK, level_of
from rlprobe.redaction.options import expected, is_option
from rlprobe.redaction.shapes import (
    HEX,
    LONG,
    MASK,
    PRIVATE_KEY,
    REFERENCE,
    RUN,
    SHAPES,
    is_drawn,
    is_harmless,
    looks_random,
)

_DASHES = 2  # before an option
_MOST_CHARACTERS = 20_000  # of a text that is looked at; the rest is left out
_USER_IN_URL = re.compile(r"\b([a-z][a-z0-9+.-]{1,30}://)([^\s/?#'\"]{1,2000})@", re.IGNORECASE)
_PLAIN_USERS = re.compile(
    r"(?:git|ssh|sftp|hdfs|s3|s3a|gs|postgres\w*|mysql|redis\w*|mongodb\S*)://"
)
_WEBHOOKS = re.compile(
    r"(hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/|"
    r"api\.telegram\.org/bot)[^\s'\"?#]+"
)
_HEADER = re.compile(
    r"((?:proxy-)?authorization|(?:set-)?cookie)(\\?[\"']?\s*[:=]\s*\\?[\"']?)(?!\s)[^\n\"'\\]+",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"\b(bearer|basic|token)(\s+)([\w.~+/=-]{6,})", re.IGNORECASE)
# `name=value`, `name: value`, `"name": "value"`, `environ["NAME"] = "value"`.
_ASSIGNED = re.compile(
    r"""(?<![\w.])([A-Za-z_][\w.-]{0,200})(\\?["']?\]?\s{0,4}(?:[:=]|=>)\s{0,4})(?=[^\s=])"""
)
_VALUE = re.compile(
    r"""(?P<quote>\\?["']) (?P<inner>.{0,4000}?) (?P=quote)
      | \[ (?P<list>[^\[\]]{0,4000}) \]
      | (?P<value>[^\s"',;&}\])|]+)""",
    re.VERBOSE | re.DOTALL,
)
_OPTION = re.compile(
    r"""(?P<name>(?<![^\s"'\[(,])--?[A-Za-z][\w.-]*)(?P<sign>\s+|\\?["']\s{0,4},\s{0,4})"""
    r"""(?P<quote>\\?["']?)(?P<value>[^\s"'\\]+)"""
)
_LOGIN = re.compile(r"(\blogin\s+(?:--?[\w-]+\s+)*)([^\s-]\S{7,})")


def text(content: str) -> str:
    """A text without its secrets: lines of output, a shell's script, JSON."""
    if len(content) > _MOST_CHARACTERS:
        content = f"{content[:_MOST_CHARACTERS]} [{len(content) - _MOST_CHARACTERS:,} more]"
    if len(content) < 4:
        return content
    content = PRIVATE_KEY.sub(MASK, content)
    if "://" in content:
        content = _USER_IN_URL.sub(_without_user, content)
    content = _WEBHOOKS.sub(rf"\1{MASK}", content)
    content = _HEADER.sub(rf"\1\2{MASK}", content)
    content = _SCHEME.sub(_without_credentials, content)
    content = _without_values(content)
    content = _OPTION.sub(_without_argument, content)
    content = _LOGIN.sub(lambda m: m[1] + (MASK if looks_random(m[2], 1) else m[2]), content)
    content = SHAPES.sub(MASK, content)
    content = HEX.sub(_without_hex, content)
    content = RUN.sub(lambda m: MASK if is_drawn(m[0]) else m[0], content)
    return LONG.sub(lambda m: MASK if is_drawn(m[0]) else m[0], content)


def lines(content: Sequence[str]) -> list[str]:
    """Lines of output, each without its secrets; a private key may go on over several."""
    if any("PRIVATE KEY" in line for line in content):
        content = PRIVATE_KEY.sub(MASK, "\n".join(content)).split("\n")
    return list(map(text, content))


def _without_user(match: re.Match[str]) -> str:
    scheme, user = match[1], match[2]
    name, colon, _ = user.partition(":")
    if colon:
        return f"{scheme}{name}:{MASK}@"
    if _PLAIN_USERS.match(scheme.lower()) or name == "git" or REFERENCE.fullmatch(name):
        return match[0]
    return f"{scheme}{MASK}@"


def _without_credentials(match: re.Match[str]) -> str:
    sure = match[1][0].isupper() or match[1].lower() == "bearer"
    needed = 1 if sure else 3
    hidden = looks_random(match[3], needed) or (sure and len(match[3]) >= 16)
    return f"{match[1]}{match[2]}{MASK}" if hidden else match[0]


def _without_values(content: str) -> str:
    """Without what is assigned to telling names; a value may hold assignments of its own."""
    parts: list[str] = []
    start = at = 0
    while name := _ASSIGNED.search(content, at):
        at = name.end()
        value = _VALUE.match(content, at) if level_of(name[1]) else None
        secret = "" if value is None else _secret_of(name, value, content)
        if value is not None and secret:
            parts += (content[start : value.start(secret)], _masked(value, secret))
            start = at = value.end(secret)
    return "".join((*parts, content[start:]))


def _secret_of(name: re.Match[str], value: re.Match[str], content: str) -> str:
    """The group of the value that is a secret; empty if none is."""
    before, behind = content[max(0, name.start() - 2) : name.start()], content[value.end() :]
    is_all = name.start() <= _DASHES and not behind.strip()
    level = level_of(name[1])
    if level == WEAK and (before.endswith(("?", "&")) or is_all):
        level = STRONG
    if ":" in name[2] and value["value"] and not (_is_sure(name[1]) or is_all):
        level = WEAK  # `invalid token: unexpected end`
    group = next(name for name in ("list", "value", "inner") if value[name] is not None)
    return group if group == "list" or not is_harmless(value[group], level) else ""


def _masked(value: re.Match[str], group: str) -> str:
    return re.sub(r"[^\s,\"']+", MASK, value["list"]) if group == "list" else MASK


def _is_sure(name: str) -> bool:
    """Whether a name with a colon behind it is one of several words, and no word of a sentence."""
    return bool(re.search(r"[_.-]|[a-z][A-Z]|passw|passphrase", name)) or name.isupper()


def _without_argument(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"]
    level = expected(name)
    if not level or is_option(value) or is_harmless(value, level):
        return match[0]
    return match[0][: match.start("value") - match.start()] + MASK


def _without_hex(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - 24) : match.start()]
    return match[0] if OF_A_HASH.search(before) else MASK


def of_hash(value: str) -> str:
    """A value that is named a hash: it is one, or a text like any other."""
    return value if HEX.fullmatch(value) else text(value)
