"""Rows that the terminal broke, and lines that only look so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importers.reading import points, read


def test_the_longest_line_between_bars_does_not_go_on_in_the_next_row(tmp_path: Path) -> None:
    text = "".join(
        f"Epoch: 0 | Step: {step} | Actor Loss: 0.{step}5 | Critic Loss: 0.5\n"
        f"|E2E latency=6.11s |Gather latency=0.00s (0.00%) |CurSamplesPerSec=5.2{step}\n"
        for step in range(1, 5)
    )
    run = read(tmp_path, "run.log", text)
    read_back = points(run, "CurSamplesPerSec") + points(run, "policy_loss")
    assert [step for step, _ in read_back] == [1, 2, 3, 4, 1, 2, 3, 4]
    expected = [5.21, 5.22, 5.23, 5.24, 0.15, 0.25, 0.35, 0.45]
    assert [value for _, value in read_back] == pytest.approx(expected)


@pytest.mark.parametrize("width", [40, 57, 80, 133])
def test_a_row_broken_at_any_width_is_read_value_for_value(tmp_path: Path, width: int) -> None:
    rows = [
        f"(Runner pid=7) step:{step} - actor/entropy_loss:0.{step}01 - actor/ppo_kl:-0.0{step}5 - "
        f"critic/score/mean:{step}.25 - actor/grad_norm:1{step}.5 - response_length/mean:51{step}.0"
        for step in range(1, 7)
    ]
    broken = [row[at : at + width] for row in rows for at in range(0, len(row), width)]
    run = read(tmp_path, "run.log", "\n".join(broken) + "\n")
    entropy = [value for _, value in points(run, "entropy")]
    assert entropy == pytest.approx([step / 10 + 0.001 for step in range(1, 7)])
    assert points(run, "grad_norm") == [(step, 10.5 + step) for step in range(1, 7)]
    assert points(run, "completion_length_mean") == [(step, 510.0 + step) for step in range(1, 7)]


@pytest.mark.parametrize("width", [44, 47])
def test_numbers_in_two_columns_go_on_in_the_next_line(tmp_path: Path, width: int) -> None:
    stamp = "2020-12-08 21:40:50.116  | "
    rows = [
        line
        for step in range(1, 4)
        for line in (
            f"{stamp}Iteration     {step}",
            f"{stamp}pass@8        5.66792{step}",
            f"{stamp}grad_norm     3.25{step}e-05",
            f"{stamp}------------  -----------",
        )
    ]
    broken = [row[at : at + width] for row in rows for at in range(0, len(row), width)]
    run = read(tmp_path, "run.log", "\n".join(broken) + "\n")
    assert [value for _, value in points(run, "pass@8")] == [5.667921, 5.667922, 5.667923]
    assert [value for _, value in points(run, "grad_norm")] == [3.251e-05, 3.252e-05, 3.253e-05]


def test_a_percentage_that_is_broken_is_one(tmp_path: Path) -> None:
    rows = [
        f"Step {step}/900|pass@8: 0.00000001|entropy: 5.304e-01|clip_ratio: 0.00{step}2%|loss: 0.5|"
        for step in range(1, 5)
    ]
    width = rows[0].index("%|") - 1
    broken = [row[at : at + width] for row in rows for at in range(0, len(row), width)]
    run = read(tmp_path, "run.log", "\n".join(broken) + "\n")
    shares = [value for _, value in points(run, "clip_ratio") or points(run, "clip_fraction")]
    assert shares == pytest.approx([0.000012, 0.000022, 0.000032, 0.000042])
