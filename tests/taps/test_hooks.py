"""The table of what is tapped, and the rooms that it names."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import rlprobe.taps
from rlprobe.taps import hooks

FOLDER = Path(rlprobe.taps.__file__).parent
PURE = sorted(path for path in FOLDER.rglob("*.py") if path.name != "recording.py")


@pytest.mark.parametrize("tap", sorted(set(hooks.HOOKS.values())))
def test_each_tap_is_there(tap: str) -> None:
    assert callable(importlib.import_module(f"rlprobe.taps.packages.{tap}").install)


def test_each_tap_is_used() -> None:
    there = {path.stem for path in (FOLDER / "packages").glob("*.py")} - {"__init__"}
    assert there == set(hooks.HOOKS.values())


def test_the_environment_carries_them() -> None:
    text = hooks.as_text(["acme.log=acme_rlprobe:install"])
    pairs = dict(pair.split("=") for pair in text.split(","))
    assert pairs == {**hooks.HOOKS, "acme.log": "acme_rlprobe:install"}


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.stem)
def test_taps_need_the_standard_library_alone_and_an_old_python(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert not any(name.name.startswith("rlprobe") for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            assert node.module in {
                "__future__", "collections", "collections.abc", "importlib.util",
                "multiprocessing", "typing",
            }, node.module  # fmt: skip
