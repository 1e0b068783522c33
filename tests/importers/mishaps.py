"""What happens to files on the way: bits flip, pieces are lost, processes write into each other."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

Change = Callable[[bytearray, Random], None]

# Words that a reader may not expect where it expects a number, a name or a value.
WORDS = (
    *(b"nan", b"NaN", b"-inf", b"Infinity", b"1e400", b"-1e400", b"1e300", b"1e-400", b"-0"),
    *(b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809", b"4294967296"),
    *(b"1" * 400, b"9" * 5000, b"0.", b".", b"-", b"+", b"e5", b"9.65e-", b"1_000", b"0x1f"),
    *(b"null", b"None", b"true", b"[]", b"{}", b"[[", b"{{", b'""', b"''", b'"', b"'", b"\\"),
    *(b"\\ud800", b"\\u0000", b"\xff\xfe", b"\xed\xa0\x80", b"\x00", b"\x1b[2J", b"\x1b]0;x\x07"),
    *("\u202e".encode(), "\u00a0".encode(), "\u0663".encode(), "\uff11".encode(), b"\xc3\xa9"),
    *(b"[bold red]x[/]", b"=cmd()", b"<script>", b"step", b"loss", b"rank", b"epoch", b"\r", b"\n"),
    *(b"\r\r\n", b"\t", b",", b";", b":", b"|", b"%|", b"(", b")", b"tensor(", b"[" * 3000),
    *(b"{" * 3000, b'{"a":' * 2000, b"step: 5", b"2.5.1", b"1/0", b"12/500", b"1,2,3", b"1e", b"#"),
)
_TOKEN = re.compile(rb"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|[A-Za-z_/]+|\"[^\"\n]{0,60}\"")


def _flip(data: bytearray, random: Random) -> None:
    for _ in range(random.choice((1, 1, 2, 8))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _cut(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data)) :]


def _lose(data: bytearray, random: Random) -> None:
    start = random.randrange(len(data))
    del data[start : start + random.choice((1, 4, 60, 1000))]


def _repeat(data: bytearray, random: Random) -> None:
    start = random.randrange(len(data))
    piece = data[start : start + random.choice((1, 8, 200, 4000))]
    data[start:start] = piece * random.choice((1, 2, 20))


def _insert(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data))
    data[at:at] = random.choice(WORDS)


def _overwrite(data: bytearray, random: Random) -> None:
    word = random.choice(WORDS)[:64]
    at = random.randrange(len(data))
    data[at : at + len(word)] = word


def _replace(data: bytearray, random: Random) -> None:
    """A number, a word or a text gives way to something else; sometimes everywhere."""
    tokens = list(_TOKEN.finditer(data[: 1 << 16]))
    if not tokens:
        return
    token, word = random.choice(tokens), random.choice(WORDS)
    if random.random() < 0.2:
        data[:] = bytes(data).replace(token[0], word[:64], 50)
    else:
        data[token.start() : token.end()] = word


def _interleave(data: bytearray, random: Random) -> None:
    """Two lines written by two processes at once."""
    lines = bytes(data).split(b"\n")
    if len(lines) < 3:
        return
    a, b = random.sample(range(len(lines)), 2)
    cut = random.randrange(len(lines[a]) + 1)
    lines[a] = lines[a][:cut] + lines[b] + lines[a][cut:]
    data[:] = b"\n".join(lines)


def _swap(data: bytearray, random: Random) -> None:
    lines = bytes(data).split(b"\n")
    a, b = random.randrange(len(lines)), random.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    data[:] = b"\n".join(lines)


CHANGES: tuple[Change, ...] = (
    *(_flip, _cut, _lose, _repeat, _insert, _overwrite, _interleave, _swap),
    *(_replace, _replace, _replace),
)
