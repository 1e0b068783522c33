"""docs/adding-a-framework.md, carried out: its TOML file makes its log understood."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from rlprobe import naming, schema
from tests.importers.reading import points, read

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-framework.md"


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A copy of schemas/ with the page's file in it."""
    copy = tmp_path / "schemas"
    shutil.copytree(str(files("rlprobe.schemas")), copy)
    (toml,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (copy / "aliases" / "acme.toml").write_text(toml, encoding="utf-8")
    monkeypatch.setattr(schema, "files", lambda package: copy)
    naming.every.cache_clear()
    yield
    naming.every.cache_clear()


@pytest.mark.usefixtures("acme")
def test_the_page_is_right(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {
            "step": step,
            "train/acme/loss": 0.5,
            "acme/score": step / 4,
            "acme/neg_entropy": -2.0,
            "acme/solved_pct": 12.5,
            "acme/resp_len": -1.0 if step == 3 else 100.0,
            "acme/reward_fn/format": 1.0,
            "acme/heldout/acme/score": 0.75,
            "acme/other": 1,
        }
        for step in range(1, 13)
    ]
    del rows[5]["train/acme/loss"]
    run = read(tmp_path, "run.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert run.info.framework == "acme"
    assert points(run, "reward_mean")[:2] == [(1, 0.25), (2, 0.5)]
    assert points(run, "entropy")[0] == (1, 2.0)
    assert points(run, "group_all_pass_fraction")[0] == (1, 0.125)
    assert 3 not in dict(points(run, "completion_length_mean"))
    assert points(run, "reward_component/format")[0] == (1, 1.0)
    assert points(run, "eval/reward_mean")[0] == (1, 0.75)
    assert run.info.unmapped == ("acme/other",)
    losses = dict(points(run, "loss"))
    assert losses[1] == 0.5
    assert math.isnan(losses[6])
