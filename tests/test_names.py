"""Names say what they are: a past participle does so for five lines at most."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VAGUE = {"found", "told", "said", "kept", "made", "left"}
MOST_LINES = 5


def long_lived(tree: ast.Module) -> Iterator[str]:
    """Locals of a vague name, with the function that they live in for too long."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            lines: dict[str, list[int]] = {}
            for node in ast.walk(function):
                name = getattr(node, "id", None) or getattr(node, "arg", None)
                if isinstance(node, ast.Name | ast.arg) and name in VAGUE:
                    lines.setdefault(str(name), []).append(node.lineno)
            for name, at in lines.items():
                if max(at) - min(at) >= MOST_LINES:
                    yield f"{function.name}: {name}"


@pytest.mark.parametrize("folder", ["rlprobe", "detectors"])
def test_no_vague_name_lives_long(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        vague = list(long_lived(ast.parse(path.read_text(encoding="utf-8"))))
        assert not vague, f"{path.relative_to(ROOT)}: {vague}"
