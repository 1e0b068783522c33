"""docs/python.md is a notebook: its blocks run in order, and show what the page says they show.

python tests/test_python_page.py      writes what they show into the page
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "python.md"
CELL = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", flags=re.DOTALL)


def shown(code: str, names: dict[str, Any]) -> str:
    """What a cell prints, and the value it ends in, as a REPL shows it."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(tree, PAGE.name, "exec"), names)
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), PAGE.name, "eval"), names)
        if value is not None:
            print(repr(value))
    return output.getvalue()


def cells() -> list[tuple[str, str]]:
    return [(cell[1], cell[2] or "") for cell in CELL.finditer(PAGE.read_text(encoding="utf-8"))]


def test_every_cell_shows_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    assert len(cells()) > 6
    for code, expected in cells():
        assert shown(code, names) == expected, f"`python {Path(__file__).name}` writes it again"


def test_no_block_of_the_page_is_left_out() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count("```python\n") == len(cells())
    assert text.count("```text\n") == sum(bool(expected) for _, expected in cells())
    assert text.count("```") == 2 * (text.count("```python\n") + text.count("```text\n"))


def write() -> None:
    """The page with what its cells show now."""
    names: dict[str, Any] = {}

    def rewritten(cell: re.Match[str]) -> str:
        output = shown(cell[1], names)
        return f"```python\n{cell[1]}```\n" + (f"\n```text\n{output}```\n" if output else "")

    text = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        PAGE.write_text(CELL.sub(rewritten, text), encoding="utf-8")


if __name__ == "__main__":
    write()
