"""Tag trees of rollouts: `<think> … </think> <answer> … </answer>`, and what is wrong with them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from rlprobe.errors import UsageError

_NAME = r"[A-Za-z][\w.-]{0,40}"
_TAG = re.compile(
    rf"<(?P<close>/?)(?P<name>{_NAME})\s*(?P<self>/?)>|<(?P<broken>/?{_NAME})(?=[\s<]|$)"
)


class Block(NamedTuple):
    """A closed block: its tag, and where its content lies in the text."""

    tag: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TagReport:
    """What a text's tags look like.

    Attributes:
        blocks: closed blocks, in order of their end.
        unclosed: tags that were opened and never closed, outermost first.
        unopened: closing tags without an opening one.
        crossed: blocks closed in the wrong order.
        malformed: things that begin like a tag and do not end like one (`<think` without `>`).
        runaway: whether the outermost unclosed tag runs to the end of the text.
    """

    blocks: tuple[Block, ...]
    unclosed: tuple[str, ...]
    unopened: tuple[str, ...]
    crossed: int
    malformed: int

    @property
    def balanced(self) -> bool:
        """Every tag is whole, closed, and closed in order."""
        return not (self.unclosed or self.unopened or self.crossed or self.malformed)

    @property
    def runaway(self) -> bool:
        """A block was opened and never closed: the text ran on to its end or cap."""
        return bool(self.unclosed)

    def content(self, text: str, tag: str) -> list[str]:
        """The contents of all closed blocks of a tag."""
        return [text[block.start : block.end] for block in self.blocks if block.tag == tag]


def read_tags(text: str, tags: frozenset[str] | None = None) -> TagReport:
    """Read the tag tree of a text: what is closed, unbalanced, malformed or runs to the end.

    A closing tag closes the nearest open one of its name; what was opened in between and is closed
    later counts as crossed. `a < b` is no tag; `<br/>` opens nothing. The grammar is that of the
    templates of DeepSeek-AI, "DeepSeek-R1" (2025), table 1, not that of XML: no attributes.

    When not to use it: as a reward of its own on texts that quote code or HTML. Name the tags.

    Args:
        tags: names that count; None: every name. Name them where the text may hold HTML or code.

    Raises:
        UsageError: no text.
    """
    if not isinstance(text, str):
        raise UsageError(f"Couldn't read tags of 'text' {text!r}: it is no text")
    reader = _Reader()
    for match in _TAG.finditer(text):
        name = match["name"] or (match["broken"] or "").removeprefix("/")
        if tags is not None and name not in tags:
            continue
        if match["broken"] is not None:
            reader.malformed += 1
        elif match["close"]:
            reader.close(name, match.start())
        elif not match["self"]:
            reader.stack.append((name, match.end()))
    return reader.report()


class _Reader:
    def __init__(self) -> None:
        self.stack: list[tuple[str, int]] = []
        self.blocks: list[Block] = []
        self.unopened: list[str] = []
        self.crossed = 0
        self.malformed = 0

    def close(self, name: str, at: int) -> None:
        opened = [index for index, (tag, _) in enumerate(self.stack) if tag == name]
        if not opened:
            self.unopened.append(name)
            return
        index = opened[-1]
        self.crossed += index != len(self.stack) - 1
        _, start = self.stack.pop(index)
        self.blocks.append(Block(name, start, at))

    def report(self) -> TagReport:
        return TagReport(
            tuple(self.blocks),
            tuple(tag for tag, _ in self.stack),
            tuple(self.unopened),
            self.crossed,
            self.malformed,
        )
