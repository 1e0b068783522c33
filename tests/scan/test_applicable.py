"""Training on pairs: it is judged as such, and what is of rollouts is one line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from rlprobe import Recorder
from rlprobe.scan.applicable import WHY

Screen = Callable[..., str]
Row = dict[str, float]


def dpo(step: int) -> Row:
    part = min(1.0, step / 80)
    wave = math.sin(step * 1.7)
    return {
        "loss": 0.69 - 0.3 * part + 0.01 * wave,
        "grad_norm": 5 + wave,
        "rewards/accuracies": 0.5 + 0.45 * part + 0.03 * wave,
        "rewards/margins": 4 * part + 0.1 * wave,
        "rewards/chosen": -4 * part,
        "rewards/rejected": -8 * part,
        "logps/chosen": -60 - 40 * part + wave,
        "logps/rejected": -70 - 80 * part + wave,
    }


def kto(step: int) -> Row:
    keys = ("loss", "grad_norm", "rewards/chosen", "rewards/rejected", "rewards/margins")
    return {key: dpo(step)[key] for key in keys}


def orpo(step: int) -> Row:
    return dpo(step) | {"nll_loss": 2.0 - step / 200, "log_odds_ratio": -0.5}


def log(path: Path, row: Callable[[int], Row]) -> Path:
    rows = [{"step": step, "epoch": step / 100, **row(step)} for step in range(1, 101)]
    path.write_text(json.dumps({"global_step": 100, "log_history": rows}))
    return path


def not_applicable(seen: str) -> str:
    lines = " ".join(seen.split())
    assert lines.count("Not applicable: ") == 1, seen
    return lines.partition("Not applicable: ")[2].partition(". ")[0]


@pytest.mark.parametrize("row", [dpo, kto, orpo], ids=["DPO", "KTO", "ORPO"])
def test_what_is_of_rollouts_is_one_line(
    row: Callable[[int], Row], tmp_path: Path, screen: Screen
) -> None:
    seen = screen("scan", log(tmp_path / "trainer_state.json", row))
    assert not_applicable(seen) == (
        "19 checks of rollouts (training on pairs generates none; length bias: pairs are logged "
        "without their lengths)"
    )
    for name in ("ZERO_VARIANCE", "REWARD_COLLAPSE", "no rollouts recorded", "no entropy logged"):
        assert name not in seen, seen
    assert seen.startswith(f"{tmp_path}") or "trainer_state.json" in seen
    assert "PASS" in seen


def test_programs_get_the_names(tmp_path: Path, screen: Screen) -> None:
    path = log(tmp_path / "trainer_state.json", dpo)
    coverage = json.loads(screen("scan", path, "--format", "json"))["coverage"]
    others = [entry["detector"] for entry in coverage if entry.get("reason") == WHY]
    assert len(others) == 19
    assert "ZERO_VARIANCE" in others
    assert "LOSS_SPIKE" not in others


def test_chosen_and_rejected_fall_together(tmp_path: Path, screen: Screen) -> None:
    seen = " ".join(screen("scan", log(tmp_path / "trainer_state.json", dpo)).split())
    assert "info PREFERENCE_COLLAPSE from step" in seen
    assert "The chosen answers became less likely" in seen
    assert "the margin grows while both fall" in seen


def test_margins_and_accuracies_are_judged(tmp_path: Path, screen: Screen) -> None:
    def swapped(step: int) -> Row:
        part = 1.0 if step > 60 else 0.0
        sick = {"rewards/accuracies": 0.1, "rewards/margins": -2.0}
        return dpo(step) | (sick if part else {})

    seen = " ".join(screen("scan", log(tmp_path / "trainer_state.json", swapped)).split())
    assert "CRITICAL PREFERENCE_COLLAPSE (reversed) first bad step 61" in seen, seen
    assert "The model prefers the rejected answers" in seen


def test_a_recorded_reward_model(tmp_path: Path, screen: Screen) -> None:
    with Recorder(tmp_path, framework="trl", algorithm="Reward") as recorder:
        for step in range(1, 41):
            recorder.step(step, loss=0.69 - step / 100, grad_norm=1 + 0.1 * math.sin(step))
    assert not_applicable(screen("scan", tmp_path)).startswith("19 checks of rollouts")


def test_a_run_with_rollouts_is_none_of_these(tmp_path: Path, screen: Screen) -> None:
    with Recorder(tmp_path, algorithm="GRPO") as recorder:
        for step in range(1, 41):
            recorder.step(step, loss=0.1, grad_norm=1 + 0.1 * math.sin(step))
    seen = screen("scan", tmp_path)
    assert "Not applicable" not in seen
    assert "no rollouts recorded" in " ".join(seen.split())
