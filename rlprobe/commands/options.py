"""Options of other programs in the words of a command: how many words each takes with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Options = list[tuple[str, str]]


def leading(words: Sequence[str], takes: Mapping[str, int]) -> tuple[Options, list[str]]:
    """The options at the start, each with its value, and the words behind them.

    Args:
        words: the arguments of a program.
        takes: how many words follow an option that takes any; `-n2` and `--n=2` are understood.
    """
    given: Options = []
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        at += 1
        if word == "--":
            break
        name, equals, value = word.partition("=")
        count = takes.get(word, 0)
        if word.startswith("--") and equals:
            given.append((name, value))
        elif count:
            given.append((word, " ".join(words[at : at + count])))
            at += count
        elif not word.startswith("--") and takes.get(word[:2]):
            given.append((word[:2], word[2:].removeprefix("=")))
        else:
            given.append((word, ""))
    return given, list(words[at:])


def one_each(*names: str) -> dict[str, int]:
    """Options that take one word each."""
    return dict.fromkeys(names, 1)


def value_of(given: Options, *names: str) -> str | None:
    """The last value of an option, under any of its names."""
    return next((value for name, value in reversed(given) if name in names), None)
