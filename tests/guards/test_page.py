"""docs/guards.md says what the docstrings say."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlprobe import guards
from rlprobe.dev import guards_page

PAGE = Path(__file__).parents[2] / "docs" / guards_page.NAME


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8").endswith("\n" + guards_page.page()), "run `make docs`"


@pytest.mark.parametrize("name", guards_page.ORDER)
def test_every_guard_says_when_not_to_use_it(name: str) -> None:
    told = getattr(guards, name).__doc__ or ""
    helpers = {"moments", "pooled_std", "most_repeats", "ModelShape", "plan_cache", "largest_cap"}
    assert name in helpers or "When not to use it:" in told


def test_nothing_public_is_left_out() -> None:
    values = {"Advantages", "Moments", "CachePlan", "TagReport", "tokens_of", "UpdatesStoppedError"}
    assert set(guards.__all__) - values == set(guards_page.ORDER)
