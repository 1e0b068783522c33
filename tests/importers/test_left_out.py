"""What stands beside the rows of a console log: read at its step, or left out and said."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlprobe.importers.console.evaluated import evaluated
from tests.importers.reading import log, only, points, read

MEMORY = (
    "[Rank {}] (after 20 iterations) memory (MB) | allocated: {} | max allocated: 2048.0 | "
    "reserved: 3072.0 | max reserved: {}"
)


def iteration(step: int) -> str:
    return f" iteration {step:8d}/ 90 | lm loss: {10 / step:.6E} | grad norm: 0.5 |"


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (
            "Evaluating: arc_easy (10-shot, type: multiple_choice)... accuracy: 0.57 | centered: "
            "-0.25 | time: 6.31s",
            {"accuracy": 0.57, "centered": -0.25, "time": 6.31},
        ),
        ("Evaluation on arc_easy: accuracy=0.57", {"accuracy": 0.57}),
        ("Evaluated arc_easy: acc = 50.0%, loss = 1.5", {"acc": 0.5, "loss": 1.5}),
        ("Evaluation results for arc_easy: pass@1: 0.25", {"pass@1": 0.25}),
    ],
)
def test_an_evaluation_is_named_by_its_task(line: str, row: dict[str, float]) -> None:
    assert evaluated(line) == {f"eval/arc_easy/{name}": value for name, value in row.items()}


@pytest.mark.parametrize(
    "line",
    [
        "Evaluating: accuracy: 0.5",
        "***** Evaluating reward, Epoch 1/1 *****",
        "Evaluating the answer we see that the loss must be near 0.5, so x = 3 is right",
        "Evaluating model on 100 samples",
        "Evaluating arc 10",
        "We are evaluating arc: accuracy: 0.5",
    ],
)
def test_other_lines_about_evaluations_are_none(line: str) -> None:
    assert evaluated(line) == {}


def test_evaluations_are_of_the_step_before_them(tmp_path: Path) -> None:
    lines = [
        "step 1 | loss: 2.0",
        "Evaluating: arc (10-shot)... accuracy: 0.25 | time: 3.0s",
        "Evaluating: copa (0-shot)... accuracy: 0.75 | time: 1.0s",
        "step 2 | loss: 1.5",
        "Evaluating: arc (10-shot)... accuracy: 0.5 | time: 3.0s",
    ]
    run = read(tmp_path, "run.log", "\n".join(lines))
    assert points(run, "loss") == [(1, 2.0), (2, 1.5)]
    assert points(run, "eval/arc/accuracy") == [(1, 0.25), (2, 0.5)]
    assert points(run, "eval/copa/accuracy") == [(1, 0.75)]
    assert run.info.unread == ()


def test_memory_is_the_largest_of_all_ranks_at_the_step_that_they_name(tmp_path: Path) -> None:
    lines = [
        iteration(10),
        MEMORY.format(1, 512.0, 4096.0),
        iteration(20),
        MEMORY.format(7, 256.0, 5120.0) + MEMORY.format(6, 1024.0, 4096.0),
        iteration(30),
    ]
    run = read(tmp_path, "run.log", "\n".join(lines))
    assert points(run, "loss") == [(10, 1.0), (20, 0.5), (30, 0.3333333)]
    assert points(run, "memory_allocated") == [(20, 1.0)]
    assert points(run, "memory_allocated_max") == [(20, 2.0)]
    assert points(run, "memory_reserved_max") == [(20, 5.0)]
    assert "reports of memory from 3 ranks: the largest" in run.info.notes


def test_the_mean_loss_of_an_epoch_is_at_its_last_step(tmp_path: Path) -> None:
    lines = ["step=10, skipped=0, lr=[0.1], mom=[0.9]", "Epoch 1/1 with loss 0.5754789632299672"]
    run = read(tmp_path, "run.log", "\n".join(lines))
    assert points(run, "loss") == [(10, 0.5754789632299672)]


def test_prints_of_a_reward_function_are_said_to_be_of_samples(tmp_path: Path) -> None:
    samples = ["  Format score: 1", "  Answer: -1.5", "  Format score: -1", "  Answer: 2"]
    lines = ["Loading shards: 1", "Loading shards: 2", *samples]
    for step in range(1, 5):
        lines += [f"step {step} | loss: {1 / step}", *samples]
    run = read(tmp_path, "run.log", "\n".join(lines))
    assert len(points(run, "loss")) == 4
    assert run.steps.names == ("loss",)
    (note,) = run.info.notes
    assert note == (
        "20 lines with numbers that came several times between rows (single samples) left out, "
        'e.g. line 3: "Format score: 1"'
    )


def test_unknown_names_beside_their_step_are_metrics_though_they_are_rare(tmp_path: Path) -> None:
    lines = []
    for step in range(1, 31):
        lines.append(f"step {step} | loss: {1 / step}")
        lines += [f"Step {step} | CORE metric: {step / 100}"] if step % 10 == 0 else []
        lines += [f"Step {step}: Analyzing formula {step}"] if step % 7 == 0 else []
    run = read(tmp_path, "run.log", "\n".join(lines))
    assert points(run, "CORE metric") == [(10, 0.1), (20, 0.2), (30, 0.3)]
    assert run.steps.names == ("CORE metric", "loss")
    assert run.info.notes == (
        "4 numbers under names that came at few steps left out: Analyzing formula",
    )


def test_rows_that_are_said_again_are_counted(tmp_path: Path) -> None:
    lines = [f"step {step} | loss: {1 / step} | tps: {n}" for step in (1, 2) for n in (10, 20, 30)]
    run = read(tmp_path, "run.log", "\n".join(lines))
    assert points(run, "loss") == [(1, 1.0), (2, 0.5)]
    assert "4 rows said again: counted once" in run.info.notes


def test_a_second_name_of_a_metric_is_kept_where_it_is_something_else(tmp_path: Path) -> None:
    row = '{{"step": {0}, "loss": 1.0, "step_time": {0}.5, "train_speed(s/it)": 9.25}}\n'
    path = log(tmp_path, "logging.jsonl", "".join(map(row.format, range(1, 4))))
    run = only(path)
    assert points(run, "step_time") == [(1, 1.5), (2, 2.5), (3, 3.5)]
    assert points(run, "train_speed(s/it)") == [(1, 9.25), (2, 9.25), (3, 9.25)]


def test_a_second_name_that_says_the_same_is_not_kept(tmp_path: Path) -> None:
    row = '{{"step": {0}, "lm loss": {0}.0, "lm-loss-training/lm loss": {0}.0}}\n'
    run = read(tmp_path, "logging.jsonl", "".join(map(row.format, range(1, 4))))
    assert run.steps.names == ("loss",)


def test_a_value_that_comes_several_times_below_another_is_of_samples(tmp_path: Path) -> None:
    lines = []
    for step in range(1, 4):
        samples = [f"reward: {sample}.5" for sample in range(3)]
        lines += [f"step {step} | loss: {1 / step}", "Group: 7", *samples]
    run = read(tmp_path, "run.log", "\n".join(lines))
    assert len(points(run, "loss")) == 3
    assert "reward" not in run.steps.names
    (note,) = run.info.notes
    assert note.startswith("9 lines with numbers that came several times between rows")


def test_a_dict_that_was_printed_as_pieces_of_a_text_is_put_together(tmp_path: Path) -> None:
    lines = [
        "step:1 - actor/pg_loss:0.25 - critic/rewards/mean:0.5",
        "step:2 - actor/pg_loss:0.5 - critic/rewards/mean:0.5",
        "(main pid=1) (\"Final validation metrics: {'val-aux/gsm8k/reward/mean@1': \"",
        "(main pid=1)  \"np.float64(0.625), 'val-core/gsm8k/acc/mean@1': \"",
        "(main pid=1)  'np.float64(0.75)}')",
    ]
    run = read(tmp_path, "run.log", "\n".join(lines))
    assert points(run, "policy_loss") == [(1, 0.25), (2, 0.5)]
    assert points(run, "eval/gsm8k/reward/mean@1") == [(2, 0.625)]
    assert points(run, "eval/gsm8k/acc/mean@1") == [(2, 0.75)]
