"""Generates docs/guards.md from the guards' docstrings."""

from __future__ import annotations

import inspect
import re
from typing import Any

from rlprobe import guards

NAME = "guards.md"
ORDER = (
    "group_advantages",
    "moments",
    "pooled_std",
    "gated_reward",
    "length_penalty",
    "repetition_penalty",
    "most_repeats",
    "RepetitionDetector",
    "read_tags",
    "stop_on_repetition",
    "StopOnRepetition",
    "ModelShape",
    "plan_cache",
    "largest_cap",
    "TokenBudget",
    "UpdateGuard",
)
_SECTION = re.compile(r"^(Args|Attributes|Raises):$")
_ITEM = re.compile(r"^    (\w[\w, ]*): (.*)$")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def page() -> str:
    """The page: what is there, the trainer's wiring, then one section per guard."""
    from rlprobe.integrations import guarding

    parts = ["# Guards", _paragraphs(guards.__doc__), "## In a TRL or Hugging Face trainer"]
    parts += [_paragraphs(guarding.__doc__), _entry("guard", guarding.guard)]
    parts += [_entry(name, getattr(guards, name)) for name in ORDER]
    return "\n\n".join(parts) + "\n"


def _entry(name: str, item: Any) -> str:
    return f"## {name}\n\n```python\n{_signature(name, item)}\n```\n\n{_paragraphs(item.__doc__)}"


def _signature(name: str, item: Any) -> str:
    """The signature as it is called, one argument per line where it is long."""
    signature = inspect.signature(item)
    shown = [str(p) for p in _bare(signature)]
    line = f"{name}({', '.join(shown)})"
    return line if len(line) <= 90 else f"{name}(\n    " + ",\n    ".join(shown) + ",\n)"


def _bare(signature: inspect.Signature) -> list[str]:
    """Parameters with defaults and without types, which the text explains."""
    shown: list[str] = []
    for parameter in signature.parameters.values():
        first_named = parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown
        shown += ["*"] if first_named else []
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        shown.append(parameter.name + _ADDRESS.sub("", default))
    return shown


def _paragraphs(text: str | None) -> str:
    """A docstring as Markdown: sections become lists, indented lines code."""
    return "\n\n".join(_paragraph(part) for part in _blocks(inspect.cleandoc(text or "")))


def _blocks(text: str) -> list[str]:
    """Paragraphs; code that holds an empty line is one."""
    blocks: list[str] = []
    for part in text.split("\n\n"):
        if blocks and part.startswith("    ") and blocks[-1].startswith("    "):
            blocks[-1] += "\n\n" + part
        else:
            blocks.append(part)
    return blocks


def _paragraph(block: str) -> str:
    head, *rest = block.split("\n")
    if _SECTION.match(head):
        return f"**{head}**\n\n" + "\n".join(_listed(rest))
    if head.startswith("    "):
        return "```python\n" + inspect.cleandoc("\n" + block) + "\n```"
    if rest and all("   " in line for line in (head, *rest)):
        return "\n".join(
            f"- **{line.split()[0].lstrip('_')}**: {line.split(None, 1)[1]}"
            for line in (head, *rest)
        )
    return block


def _listed(lines: list[str]) -> list[str]:
    """`    name: text` as list items; deeper lines go on with the item before."""
    items: list[str] = []
    for line in lines:
        found = _ITEM.match(line)
        if found:
            names = ", ".join(f"`{name.strip()}`" for name in found[1].split(","))
            items.append(f"- {names}: {found[2]}")
        elif items:
            items[-1] += "\n  " + line.strip()
    return items
