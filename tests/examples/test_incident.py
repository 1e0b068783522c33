"""The example: unguarded it is wrecked, guarded it holds, and its page tells what happens."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from examples.incident import page
from examples.incident.run import one
from examples.incident.training import HARD_FROM, Guards

PAGE = Path(page.__file__).with_name("README.md")
_ROOT = re.compile(r"^(CRITICAL|WARNING)\s+(\w+).*first bad step (\d+)", re.MULTILINE)
_VERDICT = re.compile(r"^(FAIL|WARN|PASS)\b", re.MULTILINE)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_seed_fails_unguarded_and_holds_guarded(tmp_path: Path, seed: int) -> None:
    bare = one(tmp_path / "bare", seed=seed, guards=Guards())
    assert bare.failed, bare
    safe = one(tmp_path / "safe", seed=seed, guards=Guards(gate=True, clamp=True))
    assert safe.held, safe


def test_the_page_shows_what_the_scans_say() -> None:
    shown = re.findall(r"<pre>\n(.*?)</pre>", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(shown) == 2
    for then, now in zip(map(html.unescape, shown), page.scans(), strict=True):
        assert _VERDICT.findall(then) == _VERDICT.findall(now), "run `run.py --page`"
        for before, after in zip(_ROOT.findall(then), _ROOT.findall(now), strict=True):
            assert before[:2] == after[:2]
            assert abs(int(before[2]) - int(after[2])) <= 2


@pytest.mark.integration
@pytest.mark.filterwarnings("default")
def test_trl_guarded_nothing_moves_the_weights_while_prompts_are_hard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("trl")
    from examples.incident import tiny_trl

    tiny_trl.main(tmp_path / "bare", guarded=False)
    assert not capsys.readouterr().out.rstrip().endswith("hard: 0")
    tiny_trl.main(tmp_path / "safe", guarded=True)
    assert capsys.readouterr().out.rstrip().endswith("hard: 0")


def test_the_page_tells_one_critical_incident_from_the_arrival_on() -> None:
    unguarded, guarded = re.findall(r"<pre>\n(.*?)</pre>", PAGE.read_text("utf-8"), re.DOTALL)
    critical = [found for found in _ROOT.findall(unguarded) if found[0] == "CRITICAL"]
    assert len(critical) == 1
    assert abs(int(critical[0][2]) - HARD_FROM) <= 2
    assert "CRITICAL" not in guarded


def test_the_table_holds_for_18_of_20_seeds() -> None:
    told = re.search(
        r"Unguarded failed in (\d+) of (\d+) seeds, guarded held in (\d+) of",
        PAGE.read_text("utf-8"),
    )
    assert told is not None
    failed, seeds, held = (int(number) for number in told.groups())
    assert seeds == 20
    assert min(failed, held) >= 18
