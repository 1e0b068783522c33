"""The docs say what the code does: generated pages are fresh, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlprobe.dev.docs import drifted, pages

ROOT = Path(__file__).parents[1]
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]


def test_generated_pages_are_fresh() -> None:
    assert drifted(ROOT / "docs", pages()) == [], "run `make docs`"


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
