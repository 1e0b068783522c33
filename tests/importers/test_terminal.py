"""Logs that a terminal broke at its width, and logs that only look so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rlprobe.importers.console.terminal import terminal_of, unbroken
from tests.importers.reading import points, read

_CHATTER = (
    "The answer is 42. So we add 3 and 4 to get 7, and then 7 * 6 = 42.",
    "2024-05-01 10:11:12 [WARNING] slow data loader, see https://example.com/a?b=3",
    "/usr/lib/python3.11/site-packages/torch/utils/checkpoint.py:87: UserWarning: None of them",
)


def broken(lines: Sequence[str], width: int, *, stripped: bool = False) -> str:
    pieces = [line[at : at + width] for line in lines for at in range(0, max(len(line), 1), width)]
    return "\n".join(piece.rstrip(" ") if stripped else piece for piece in pieces) + "\n"


def names(folder: Path, text: str) -> set[str]:
    return set(read(folder, "run.log", text).steps.names)


@pytest.mark.parametrize("stripped", [False, True])
@pytest.mark.parametrize("width", [41, 56, 65, 80, 97])
def test_rows_among_chatter_are_read_and_chatter_is_not(
    tmp_path: Path, width: int, stripped: bool
) -> None:
    rows = [
        f"step: {step}, loss: 0.{step}25, kl: 1.{step}e-05, reward: -{step}.75, entropy: 2.{step}"
        for step in range(1, 8)
    ]
    lines = [line for row, said in zip(rows, _CHATTER * 3, strict=False) for line in (said, row)]
    run = read(tmp_path, "run.log", broken(lines, width, stripped=stripped))
    assert points(run, "loss") == [(step, float(f"0.{step}25")) for step in range(1, 8)]
    assert points(run, "kl_mean") == [(step, float(f"1.{step}e-05")) for step in range(1, 8)]
    assert set(run.steps.names) == {"loss", "kl_mean", "reward_mean", "entropy"}


@pytest.mark.parametrize("stripped", [False, True])
@pytest.mark.parametrize("width", [40, 42, 47, 61])
def test_a_box_of_several_columns_is_read_at_any_width(
    tmp_path: Path, width: int, stripped: bool
) -> None:
    lines: list[str] = []
    for step in range(1, 6):
        lines += [
            f"Epoch 1/10 Step {step}/104 Train step {step}/104 done.",
            "╒─────────────┼──────────┼─────────────┼──────────╕",
            f"│ loss        │ 0.{step}25    │ grad_norm   │ {step}.5      │",
            f"│ entropy     │ -1.{step}     │             │          │",
            "╘─────────────┼──────────┼─────────────┼──────────╛",
        ]
    run = read(tmp_path, "run.log", broken(lines, width, stripped=stripped))
    assert points(run, "loss") == [(step, float(f"0.{step}25")) for step in range(1, 6)]
    assert points(run, "grad_norm") == [(step, step + 0.5) for step in range(1, 6)]
    assert points(run, "entropy") == [(step, -float(f"1.{step}")) for step in range(1, 6)]


@pytest.mark.parametrize("width", [40, 44])
def test_a_markdown_table_that_is_broken_is_no_table_with_a_delimiter(
    tmp_path: Path, width: int
) -> None:
    rows = [f"| {step} | 0.{step}6318223137 | {step}.298 | 0.00995188 |" for step in range(1, 6)]
    lines = ["| step | loss | entropy | reward_std |", "|---|---|---|---|", *rows]
    run = read(tmp_path, "run.log", broken(lines, width))
    assert points(run, "loss") == [(step, float(f"0.{step}6318223137")) for step in range(1, 6)]


@pytest.mark.parametrize("width", [60, 77, 90])
def test_a_body_of_a_dict_behind_a_prefix_is_put_together(tmp_path: Path, width: int) -> None:
    rows = [
        f"train | 'loss': '0.{step}5', 'grad_norm': '2.206{step}e+02', 'policy_loss': '1.40', "
        f"'global_step/max_steps': '{step}/106'"
        for step in range(1, 6)
    ]
    run = read(tmp_path, "run.log", broken(rows, width))
    expected = [(step, float(f"2.206{step}e+02")) for step in range(1, 6)]
    assert points(run, "grad_norm") == expected


def test_a_row_that_ends_at_the_width_does_not_go_on_in_chatter(tmp_path: Path) -> None:
    rows = [f"step {step} | loss 0.{step}25 | entropy 163.6{step}27 GB" for step in range(1, 6)]
    assert len({len(row) for row in rows}) == 1
    lines = [line for row in rows for line in (row, "The answer is 42, as 7 goes on.", "")]
    run = read(tmp_path, "run.log", "\n".join(lines))
    assert set(run.steps.names) == {"loss", "entropy"}
    assert [value for _, value in points(run, "entropy")] == [
        float(f"163.6{step}27") for step in range(1, 6)
    ]


def test_the_number_of_a_step_in_a_heading_is_put_together(tmp_path: Path) -> None:
    lines = [
        line
        for step in (0, 50, 100, 150)
        for line in (f"2024-05-01 10:11:12 - trainer - INFO - Step {step}:", f"- loss: {step}.5")
    ]
    run = read(tmp_path, "run.log", broken(lines, 45))
    assert points(run, "loss") == [(0, 0.5), (50, 50.5), (100, 100.5), (150, 150.5)]


def test_a_unit_may_stand_on_the_next_line(tmp_path: Path) -> None:
    rows = [f"step: {n}: reward: -2.5 entropy: 0.{n}5 loss: 7 s kl: 1.5" for n in range(1, 6)]
    run = read(tmp_path, "run.log", broken(rows, rows[0].index(" s kl")))
    assert points(run, "kl_mean") == [(step, 1.5) for step in range(1, 6)]


def test_a_row_that_ends_in_a_full_stop_does_not_go_on_in_a_path(tmp_path: Path) -> None:
    rows = [f"Step: {n}. Mean Reward: 0.{n}5. Std of Reward: 1.25. Training." for n in range(1, 6)]
    width = len(rows[0])
    said = "/usr/lib/python3.11/site-packages/torch/utils/checkpoint.py:87: UserWarning: None of"
    lines = [line for row in rows for line in (row, said)]
    run = read(tmp_path, "run.log", broken(lines, width))
    assert [value for _, value in points(run, "reward_mean")] == [0.15, 0.25, 0.35, 0.45, 0.55]


def test_a_counter_and_a_nan_in_two_columns_are_put_together(tmp_path: Path) -> None:
    lines: list[str] = []
    for step in range(13, 18):
        lines += [
            f"2020-12-08 21:40:50.116  | Diagnostics/Iteration  {step}",
            "2020-12-08 21:40:50.116  | grad_norm              nan",
            f"2020-12-08 21:40:50.116  | reward_std             6.8{step}",
            "2020-12-08 21:40:50.116  ---------------------  ----------",
        ]
    run = read(tmp_path, "run.log", broken(lines, 51))
    assert points(run, "reward_std") == [(n, float(f"6.8{n}")) for n in range(13, 18)]
    assert [step for step, _ in points(run, "grad_norm")] == list(range(13, 18))


def test_an_exponent_is_whole_with_two_digits(tmp_path: Path) -> None:
    lines = [
        line
        for step in (5, 10, 15)
        for line in (
            f"policy/update/entropy/avg/of-all -5.2775{step % 7}e+00\n{step}",
            f"loss 1.1e+01 {step}",
        )
    ]
    run = read(tmp_path, "run.log", "\n".join(lines) + "\n")
    assert points(run, "loss") == [(5, 11.0), (10, 11.0), (15, 11.0)]
    values = [v for name in run.steps.names for _, v in points(run, name)]
    assert all(abs(value) < 12 for value in values)


def test_a_name_of_two_words_keeps_the_blank_at_which_it_was_broken(tmp_path: Path) -> None:
    rows = [f"step {n}, entropy: 0.13, Train loss: 1{n}.146" for n in range(1, 6)]
    width = rows[0].index(" loss")
    text = "\n".join(f"{row[:width]:<40}".rstrip() + "\n" + row[width + 1 :] for row in rows)
    filled = text.replace("step ", "the step of this training run is now step ")
    read_back = names(tmp_path, filled)
    assert "Trainloss" not in read_back


def test_scalars_without_their_step_are_said_and_not_given_to_another(tmp_path: Path) -> None:
    text = "".join(f"train/loss 0.{step}5 {step}\nkl 0.1 {step}\n" for step in range(1, 5))
    run = read(tmp_path, "run.log", text + "train/loss 0.55\nkl 0.1 5\n")
    assert [step for step, _ in points(run, "loss")] == [1, 2, 3, 4]
    assert sum(item.count for item in run.info.unread) == 1


def test_chatter_behind_a_yaml_block_is_none_of_it(tmp_path: Path) -> None:
    block = "Result for PPO_env_0:\n  done: false\n  entropy: 0.1{n}\n  loss: 0.3{n}\n"
    block += "  training_iteration: {n}\n  \n"
    chatter = "The answer is 42. So we add 3 and 4 to get 7, and then 7\n/a/checkpoint.py:87\n"
    text = "".join(block.replace("{n}", str(n)) + chatter for n in range(1, 5))
    assert names(tmp_path, text) == {"entropy", "loss"}


def test_a_spread_under_a_heading_is_no_sample_of_a_name_of_its_own(tmp_path: Path) -> None:
    text = "".join(
        f"[Step {n}]\n\treward = 6.{n} ± 1.75\n\tspeed(iter/s) = 2.5 tokens/s\n"
        f"\treward_std = 2{n}.5\n"
        for n in range(1, 6)
    )
    run = read(tmp_path, "run.log", text)
    assert points(run, "reward_std") == [(n, 20.5 + n) for n in range(1, 6)]


def test_a_row_whose_number_is_nan_is_at_its_own_step(tmp_path: Path) -> None:
    rows = ["0.99ms", "0.98ms", "nan", "0.97ms"]
    text = "".join(
        f"epoch: 0|step: {step}|Learning Rate: {rate}\npolicy_loss: -{step}.5\n{'-' * 60}\n"
        for step, rate in enumerate(rows, start=1)
    )
    run = read(tmp_path, "run.log", text)
    assert points(run, "policy_loss") == [(1, -1.5), (2, -2.5), (3, -3.5), (4, -4.5)]


@pytest.mark.parametrize("lead", ["0: train | ", "0: 10:11:12 ", "0:                Learning "])
def test_the_number_of_a_task_is_no_step(tmp_path: Path, lead: str) -> None:
    heading = "iteration" if "Learning" in lead else "Iteration"
    text = "".join(
        f"{lead}{heading} {step}/97\n0:   loss: 0.{step}5\n0:   reward: {step}.5\n"
        for step in range(3, 8)
    )
    run = read(tmp_path, "run.log", text)
    assert points(run, "reward_mean") == [(step, step + 0.5) for step in range(3, 8)]


_PANEL = "".join(
    f"{'-' * 41}\n| time/              |                  |\n|    total_timesteps | {n:<16} |\n"
    f"| loss               | 0.{n}25            |\n{'-' * 41}\n"
    for n in range(1, 8)
)
_EQUAL = "".join(f" iteration {n:8d}/     500 | lm loss: {n}.0E+00 |\n" for n in range(1, 8))
_COLUMNS = "step    loss    entropy   grad_norm   timing_s/step\n" + "".join(
    f"{n}       0.{n}25   1.{n}       nan         0.00{n}        \n" for n in range(1, 8)
)
_DICTS = "".join(
    "{'loss': 0.5" + str(n) + ", 'grad_norm': 1.25,\n 'lr': 1e-05, 'step': 1}\n" for n in range(9)
)


_PROSE = """\
    classification (one label for the whole of it,
        not one for each token). What it takes
    is the mean of all tokens (but not of the last
        of them, which is one of padding).
"""


@pytest.mark.parametrize(
    "text",
    [_PANEL, _EQUAL, _COLUMNS, _DICTS, _PROSE],
    ids=["panel", "equal", "table", "dict", "prose"],
)
def test_lines_of_one_length_are_not_broken_by_that(text: str) -> None:
    assert terminal_of(text.encode()) is None


def test_pieces_of_a_line_count_as_lines() -> None:
    text = broken([f"step: {n}, loss: 0.{n}25, kl: 0.5, entropy: 1.5" for n in range(1, 5)], 41)
    terminal = terminal_of(text.encode())
    assert terminal is not None
    assert terminal.width == 41
    whole = list(unbroken(text.splitlines(), terminal))
    assert len(whole) == len(text.splitlines())
    assert whole[:3] == ["step: 1, loss: 0.125, kl: 0.5, entropy: 1.5", "", whole[2]]
