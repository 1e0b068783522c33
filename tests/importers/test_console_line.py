"""Lines of output: what is a row of metrics, and what only looks like one."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlprobe.importers.console.line import MAX_CHARACTERS, parse, step_of


def test_trainer_5_prints_quoted_numbers() -> None:
    row = parse("{'loss': '0.01', 'grad_norm': '1.25', 'learning_rate': '1e-06', 'epoch': '0.1'}")
    assert row == {"loss": 0.01, "grad_norm": 1.25, "learning_rate": 1e-6, "epoch": 0.1}


def test_trainer_4_prints_bare_numbers_and_nan() -> None:
    row = parse("{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 9.5e-07, 'epoch': 0.02}")
    assert row is not None
    assert math.isnan(row["grad_norm"])
    assert row["loss"] == 0.0


def test_infinities_keep_their_sign() -> None:
    row = parse("{'loss': inf, 'grad_norm': '-inf', 'reward': -Infinity}")
    assert row == {"loss": math.inf, "grad_norm": -math.inf, "reward": -math.inf}


def test_none_is_not_logged() -> None:
    assert parse("{'loss': 0.5, 'reward': None}") == {"loss": 0.5}


def test_behind_a_progress_bar_and_colours() -> None:
    row = parse("\x1b[32m  1%|          | 1/200 [00:01<03:19,  1.0s/it]\x1b[0m{'loss': 0.5}")
    assert row == {"loss": 0.5}


def test_json_line_tells_its_step() -> None:
    row = parse('{"step": 12, "loss": 0.25, "kl": null}')
    assert row == {"step": 12.0, "loss": 0.25}
    assert step_of(row) == 12


def test_verl_with_ray_prefix_and_numpy_scalars() -> None:
    line = (
        "\x1b[36m(TaskRunner pid=48211, ip=10.0.0.7)\x1b[0m step:12 - actor/pg_loss:np.float64(0.1)"
        " - actor/grad_norm:np.float64(nan) - critic/score/mean:0.51 - loss:0.3"
    )
    row = parse(line)
    assert row is not None
    assert row["step"] == 12
    assert row["actor/pg_loss"] == 0.1
    assert math.isnan(row["actor/grad_norm"])
    assert row["critic/score/mean"] == 0.51


def test_openrlhf_with_logger_prefix() -> None:
    line = (
        "(PPOTrainer pid=911) INFO 08-22 10:01:12 ppo_trainer.py:551] ✨ Global step 7: "
        "{'policy_loss': -0.0012, 'actor_grad_norm': 0.41, 'reward': nan, 'kl': tensor(0.0031)}"
    )
    row = parse(line)
    assert row is not None
    assert row["step"] == 7
    assert row["policy_loss"] == -0.0012
    assert row["kl"] == 0.0031
    assert math.isnan(row["reward"])


@pytest.mark.parametrize(
    "line",
    [
        "step 12 | loss 0.52 | lr 1e-4",
        "step=12 loss=0.52 lr=1e-4",
        "Step 12/500: loss=0.52, lr=1e-4",
        "[step 12] loss: 0.52, lr: 1e-4",
        "global_step: 12 | loss: 0.52 | lr: 0.0001",
        "INFO iter 12 loss 0.52 lr 1e-4",
    ],
)
def test_plain_lines(line: str) -> None:
    row = parse(line)
    assert row is not None
    assert {key: row[key] for key in ("step", "loss", "lr")} == {
        "step": 12,
        "loss": 0.52,
        "lr": 1e-4,
    }


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Traceback (most recent call last):",
        "{'learning_rate': 1e-6, 'max_steps': 200}",
        "{'loss': 'dapo', 'beta': 0.04, 'num_generations': 8}",
        "{'loss': 0.5, 'use_vllm': True}",
        "{'loss': 0.5, 'nested': {'a': 1}}",
        "step 12",
        "step 12 of the installation: 3 files",
        "Using step size 0.1",
        "loss 0.52",
        "footstep 12 loss 0.5",
        "step:x - loss:0.5",
        "{" * 5000,
        "{'loss': __import__('os').system('true')}",
    ],
)
def test_what_only_looks_like_metrics(line: str) -> None:
    assert parse(line) is None


def test_a_huge_line_is_read_up_to_a_bound() -> None:
    assert parse("{'loss': 0.5, " + "'x': 1, " * MAX_CHARACTERS) is None


@pytest.mark.parametrize(
    "line",
    [
        "step 1 " + "a" * 30_000,
        "step" + " " * 30_000 + "x",
        "step 1 | loss" + " " * 30_000 + "x",
        "step 1 " + "a." * 15_000,
        "step 1" + "0" * 30_000 + "x",
        "step 1 " + "loss " * 6_000,
        "{'loss': " + "9" * 30_000 + "(",
        "{" + "'a': 1, " * 4_000,
        "step:1 - " + "a:" * 15_000,
        "step 1 | loss " + "1_" * 15_000,
        "\x1b[" * 10_000 + "step 1",
    ],
)
def test_no_line_takes_long(line: str) -> None:
    started = time.perf_counter()
    parse(line)
    assert time.perf_counter() - started < 1.0


@given(st.text(max_size=300))
def test_any_text_is_survived(text: str) -> None:
    row = parse(text)
    assert row is None or all(isinstance(value, float) for value in row.values())


@given(
    st.integers(0, 10**9),
    st.floats(allow_nan=False),
    st.sampled_from(
        ["step {s} | loss {v!r}", "{{'step': {s}, 'loss': {v!r}}}", "step:{s} - loss:{v!r}"]
    ),
)
def test_numbers_come_back_exactly(step: int, value: float, form: str) -> None:
    row = parse(form.format(s=step, v=value))
    assert row == {"step": step, "loss": value}


def test_a_spread_under_its_own_name_is_not_what_stands_behind_a_plus_minus() -> None:
    row = parse("step: 3, reward_std: 20.5, reward: 6.4 ± 1.75, loss: 0.5")
    assert row == {"step": 3, "reward_std": 20.5, "reward": 6.4, "loss": 0.5}
