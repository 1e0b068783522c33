"""Several trainings in one output are several runs; launches of one training are not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rlprobe.errors import InputError
from rlprobe.importers import open_runs
from rlprobe.importers.console.notebook import Notebook
from rlprobe.importers.source import Source
from rlprobe.store.run import Run
from tests.importers.reading import log, points
from tests.importers.test_notebook import LOSSES, SB3, cell, error, notebook, shown, stream, table

SUMMARY = (
    "{'train_runtime': 31.5, 'train_samples_per_second': 4.1, 'train_loss': 0.31, 'epoch': 1.0}"
)
TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 7, in <module>
RuntimeError: CUDA error: an illegal memory access was encountered"""


def sft(count: int = 6, first: int = 1, of: int | None = None) -> list[str]:
    return [
        f"{{'loss': {2 - i * 0.11:.3f}, 'grad_norm': 0.7, 'learning_rate': 1e-05, "
        f"'epoch': {i / (of or count):.2f}}}"
        for i in range(first, first + count)
    ]


def grpo(count: int = 9) -> list[str]:
    return [
        f"{{'loss': 0.002, 'grad_norm': 0.3, 'learning_rate': 1e-06, 'reward': {i * 0.125:.3f}, "
        f"'reward_std': 0.25, 'kl': 0.013, 'completion_length': {90 + i}, 'epoch': {i / 40:.3f}}}"
        for i in range(1, count + 1)
    ]


def stepped(count: int, first: int = 1, loss: float = 1.0, more: str = "") -> list[str]:
    return [
        f"step {i} | loss {loss - i * 0.01:.3f} | lr 1e-5{more}"
        for i in range(first, first + count)
    ]


def banner(examples: str, total: int) -> list[str]:
    return [
        "***** Running training *****",
        f"  Num examples = {examples}",
        "  Num Epochs = 1",
        f"  Total optimization steps = {total}",
    ]


def runs_of(folder: Path, *lines: str | Sequence[str]) -> list[Run]:
    told = [line for part in lines for line in ([part] if isinstance(part, str) else part)]
    return open_runs(log(folder, "train.log", "\n".join(told) + "\n"))


def shapes(runs: Sequence[Run]) -> list[tuple[str, int, int]]:
    return [(run.info.id, len(run.steps), len(run.info.attempts)) for run in runs]


def test_a_grpo_after_an_sft_is_a_run_of_its_own(tmp_path: Path) -> None:
    first, second = runs_of(tmp_path, sft(), SUMMARY, grpo())
    assert shapes([first, second]) == [("train.log#1", 6, 1), ("train.log#2", 9, 1)]
    assert [step for step, _ in points(second, "reward_mean")] == list(range(1, 10))
    assert "training 1 of 2 in this file" in first.info.notes
    assert "training 2 of 2 in this file" in second.info.notes
    assert "reward_mean" not in first.steps.names


def test_what_is_measured_tells_a_training_without_a_summary(tmp_path: Path) -> None:
    assert shapes(runs_of(tmp_path, sft(), "saving the model", grpo())) == [
        ("train.log#1", 6, 1),
        ("train.log#2", 9, 1),
    ]


def test_two_of_the_same_kind_are_told_by_the_summary(tmp_path: Path) -> None:
    assert shapes(runs_of(tmp_path, sft(), SUMMARY, sft(8), SUMMARY)) == [
        ("train.log#1", 6, 1),
        ("train.log#2", 8, 1),
    ]


def test_a_smoke_test_that_came_to_its_end_is_a_run(tmp_path: Path) -> None:
    assert shapes(runs_of(tmp_path, sft(2), SUMMARY, sft(8)))[0] == ("train.log#1", 2, 1)


def test_three_trainings_with_steps_of_their_own(tmp_path: Path) -> None:
    preferences = " | rewards/chosen 0.5 | rewards/rejected 0.1 | rewards/margins 0.4"
    runs = runs_of(tmp_path, stepped(20), SUMMARY, stepped(30, more=preferences), SUMMARY, grpo())
    assert [len(run.steps) for run in runs] == [20, 30, 9]
    assert [run.info.id for run in runs] == ["train.log#1", "train.log#2", "train.log#3"]


def test_other_numbers_in_the_announcement_begin_a_training(tmp_path: Path) -> None:
    first = [banner("1,200", 50), stepped(12)]
    other = runs_of(tmp_path, *first[0], *first[1], banner("9,000", 80), stepped(15))
    assert [len(run.steps) for run in other] == [12, 15]
    same = runs_of(tmp_path, *first[0], *first[1], *first[0], stepped(15))
    assert shapes(same) == [("train.log", 27, 2)]


def test_an_evaluation_is_announced_with_numbers_of_its_own(tmp_path: Path) -> None:
    held_out = ["***** Running Evaluation *****", "  Num examples = 64", "  Batch size = 8"]
    lines = [banner("1,200", 50), sft(4, of=8), held_out, "{'eval_loss': 1.5, 'epoch': 0.5}"]
    lines += [sft(4, first=5, of=8), SUMMARY, held_out, "{'eval_loss': 1.25, 'epoch': 1.0}"]
    assert shapes(runs_of(tmp_path, *lines)) == [("train.log", 8, 1)]


def test_a_crash_and_a_launch_from_the_beginning_are_one_run(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path, stepped(12), TRACEBACK, stepped(20, loss=1.5))
    assert [(a.first_step, a.last_step) for a in run.info.attempts] == [(1, 12), (1, 20)]
    assert [(event.kind, event.step, event.attempt) for event in run.events] == [("crash", 12, 1)]


def test_a_launch_that_resumes_is_one_run(tmp_path: Path) -> None:
    resumed = "Continuing training from checkpoint, will skip to saved global_step"
    (run,) = runs_of(
        tmp_path,
        banner("50", 30),
        stepped(12),
        TRACEBACK,
        banner("50", 30),
        resumed,
        stepped(20, 9),
    )
    assert [(a.first_step, a.last_step) for a in run.info.attempts] == [(1, 12), (9, 28)]


def test_a_launch_without_steps_is_seen_by_its_epoch(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path, sft(8, of=20), TRACEBACK, sft(12, of=20))
    assert [(a.first_step, a.last_step) for a in run.info.attempts] == [(1, 8), (1, 12)]


def test_a_launch_without_steps_goes_on_where_its_epoch_says(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path, sft(8, of=20), TRACEBACK, sft(12, first=5, of=20))
    assert [(a.first_step, a.last_step) for a in run.info.attempts] == [(1, 8), (5, 16)]


def test_a_training_that_goes_on_after_its_summary_is_one_run(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path, stepped(12), SUMMARY, stepped(12, 13))
    assert (len(run.steps), len(run.info.attempts)) == (24, 1)


def test_an_epoch_that_counts_steps_anew_is_one_run(tmp_path: Path) -> None:
    lines = [
        f"epoch {epoch} step {step} | loss {1 / (epoch + step):.3f} | lr 1e-4"
        for epoch in (1, 2, 3)
        for step in range(1, 9)
    ]
    assert len(runs_of(tmp_path, lines)) == 1


def test_rows_of_several_kinds_in_turn_are_one_run(tmp_path: Path) -> None:
    lines: list[str] = []
    for step in range(1, 30):
        lines.append(f"step {step} | loss {3 / step:.3f} | grad_norm 0.5 | lr 1e-4")
        lines.append(f"step {step} | reward {step / 10} | kl 0.1 | entropy 1.5 | value_loss 0.2")
    assert len(runs_of(tmp_path, lines)) == 1


@pytest.mark.parametrize(
    "result",
    ["{'reward': 0.75, 'accuracy': 0.5, 'length': 80.5}", "{'loss': 0.5, 'f1': 0.8, 'recall': 1}"],
)
def test_results_after_the_end_are_no_training(tmp_path: Path, result: str) -> None:
    assert len(runs_of(tmp_path, sft(), SUMMARY, result)) == 1


def test_a_training_is_opened_by_its_number(tmp_path: Path) -> None:
    runs_of(tmp_path, sft(), SUMMARY, grpo())
    (run,) = open_runs(f"{tmp_path}/train.log#2")
    assert (run.info.path, len(run.steps)) == (f"{tmp_path}/train.log#2", 9)
    with pytest.raises(InputError, match="training 3 of"):
        open_runs(f"{tmp_path}/train.log#3")
    with pytest.raises(InputError, match="no such file"):
        open_runs(f"{tmp_path}/other.log#1")


def test_a_file_whose_name_has_a_number_sign_is_opened(tmp_path: Path) -> None:
    (run,) = open_runs(log(tmp_path, "train#2", "\n".join(stepped(5))))
    assert run.info.id == "train#2"


def in_notebook(folder: Path, *cells: object) -> list[Run]:
    return open_runs(log(folder, "run.ipynb", notebook(*cells)))  # type: ignore[arg-type]


def drawn(rows: int, loss: float, of: int, *, first: int = 1) -> str:
    bar = f"[ {first + rows - 1}/{of} 07:28 < 1:13:56, 0.01 it/s, Epoch 0.5/1]"
    told = {step: [round(loss - step / 100, 3)] for step in range(first, first + rows)}
    return table(told, "Training Loss", bar=bar)


def test_cells_that_came_to_their_end_are_runs(tmp_path: Path) -> None:
    runs = in_notebook(tmp_path, cell(shown(drawn(6, 2.0, 6))), cell(shown(drawn(6, 3.0, 6))))
    assert shapes(runs) == [("run.ipynb#1", 6, 1), ("run.ipynb#2", 6, 1)]


def test_two_tables_of_one_cell_are_two_runs(tmp_path: Path) -> None:
    runs = in_notebook(tmp_path, cell(shown(drawn(6, 2.0, 6)), shown(drawn(6, 3.0, 6))))
    assert shapes(runs) == [("run.ipynb#1", 6, 1), ("run.ipynb#2", 6, 1)]


def test_a_table_that_grows_in_several_outputs_is_one_run(tmp_path: Path) -> None:
    grown = [shown(drawn(rows, 2.0, 12)) for rows in (3, 7, 12, 12)]
    runs = in_notebook(tmp_path, cell(*grown), cell(shown(drawn(5, 3.0, 12))))
    assert shapes(runs) == [("run.ipynb#1", 12, 1), ("run.ipynb#2", 5, 1)]


def test_a_first_try_that_was_interrupted_is_a_launch(tmp_path: Path) -> None:
    stopped = cell(shown(drawn(4, 2.0, 60)), error("KeyboardInterrupt", ""))
    (run,) = in_notebook(tmp_path, stopped, cell(shown(drawn(60, 3.0, 60))))
    assert [(a.first_step, a.last_step) for a in run.info.attempts] == [(1, 4), (1, 60)]


def test_another_number_of_steps_is_another_training(tmp_path: Path) -> None:
    stopped = cell(shown(drawn(4, 2.0, 60)), error("RuntimeError", "lost"))
    runs = in_notebook(tmp_path, stopped, cell(shown(drawn(20, 3.0, 90))))
    assert [len(run.steps) for run in runs] == [4, 20]
    assert [event.kind for event in runs[0].events] == ["crash"]
    assert not runs[1].events


def test_a_training_that_goes_on_in_another_cell_is_one_run(tmp_path: Path) -> None:
    more = drawn(5, 3.0, 12, first=7)
    (run,) = in_notebook(tmp_path, cell(shown(drawn(6, 3.0, 6))), cell(shown(more)))
    assert (len(run.steps), len(run.info.attempts)) == (11, 1)


def test_tables_of_stable_baselines_in_two_cells_are_two_runs(tmp_path: Path) -> None:
    learnt = [SB3.format(reward=step // 100, step=step) for step in (512, 1024, 1536)]
    again = [SB3.format(reward=step // 50, step=step) for step in (512, 1024)]
    runs = in_notebook(tmp_path, cell(stream(learnt)), cell(stream(again)))
    assert [len(run.steps) for run in runs] == [3, 2]


def test_another_place_to_log_to_is_another_training(tmp_path: Path) -> None:
    first = [SB3.format(reward=step // 100, step=step) for step in (512, 1024, 1536)]
    second = [SB3.format(reward=step // 50, step=step) for step in (512, 1024)]
    runs = runs_of(tmp_path, "Logging to tb/PPO_1", first, "Logging to tb/PPO_2", second)
    assert [len(run.steps) for run in runs] == [3, 2]
    before = ["Logging to tb/PPO_1", *first, TRACEBACK]
    (run,) = runs_of(tmp_path, before, "Logging to tb/PPO_2", second)
    assert len(run.info.attempts) == 2


def test_a_table_of_evaluations_by_step_is_said_and_is_no_training(tmp_path: Path) -> None:
    told = table({2: [0.7, 0.1], 4: [0.9, 0.2]}, "reward", "accuracy")
    drawn_before = table({step: [loss] for step, loss in LOSSES.items()}, "Training Loss")
    path = log(tmp_path, "run.ipynb", notebook(cell(shown(drawn_before)), cell(shown(told))))
    (reading,) = Notebook().read(Source(path))
    assert reading.rows.steps().tolist() == list(LOSSES)
    (unread,) = reading.unread
    assert (unread.count, unread.of) == (2, 6)
    assert unread.examples[0] == (1, "step 2: reward 0.7, accuracy 0.1")


def test_messages_stand_behind_the_rows_before_them(tmp_path: Path) -> None:
    warning = "trl/trainer.py:194: UserWarning: KL divergence is starting to become negative: -5.27"
    lines = [line for row in grpo(3) for line in (row, warning)]
    (run,) = runs_of(tmp_path, lines)
    assert [event.step for event in run.events if event.kind == "kl_negative"] == [1, 2, 3]


def test_a_row_that_waits_for_its_rest_is_of_the_training_before(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, stepped(20), SUMMARY, stepped(30, loss=2.0), SUMMARY)
    assert [points(run, "loss")[-1][0] for run in runs] == [20, 30]


def test_validations_under_a_heading_are_no_rewards_of_the_training(tmp_path: Path) -> None:
    rows = [f"step {i} | loss {1 - i / 100:.2f} | reward {i / 10} | lr 1e-5" for i in range(1, 41)]
    validated = ["Running validation at step 20/40", "  Average Reward: 6.25", ""]
    lines = [*rows[:20], *validated, *rows[20:], "Running validation at step 40/40", validated[1]]
    (run,) = runs_of(tmp_path, lines)
    assert points(run, "reward_mean") == [(i, i / 10) for i in range(1, 41)]
