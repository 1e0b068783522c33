"""Rows that are taken as columns are what they are when they are read line by line."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks import long_logs
from rlprobe.importers import open_runs
from rlprobe.importers.console.repeats import sieve, stretches
from rlprobe.importers.console.repeats.columns import Tokens
from rlprobe.importers.console.repeats.meaning import Known
from rlprobe.importers.console.repeats.stretches import Stretches
from rlprobe.store.run import Run
from tests.importers.reading import log
from tests.importers.test_sieve import NOISE, same_runs

STEPS = 150
SPARSE = (
    "trl",
    "solutions",
    "megatron",
)  # of which most rows have something unheard of between them
PANEL = """\
----------------------------
| rollout/      |          |
|    ep_rew_mean | {:<7.4f} |
| time/ |                  |
|    total_timesteps | {:<6} |
| train/ |                 |
|    loss       | {:<8.4f} |
----------------------------"""


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sieve, "_LEARNING_BYTES", 4_000)
    monkeypatch.setattr(stretches, "_FEWEST", 3)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many lines were taken at once, each time."""
    counts: list[int] = []
    take = Stretches.take

    def counted(self: Stretches, place: int, line: Known, *, gave: bool) -> int:
        after = take(self, place, line, gave=gave)
        counts.extend([after - place] if after > place + 1 else [])
        return after

    monkeypatch.setattr(Stretches, "take", counted)
    return counts


def line_by_line(path: Path) -> list[Run]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stretches, "take", lambda *args, **_: args[1] + 1)
        return open_runs(path)


def the_same(path: Path) -> list[Run]:
    runs, slow = open_runs(path), line_by_line(path)
    assert len(runs) == len(slow)
    for one, other in zip(runs, slow, strict=True):
        same_runs(one, other)
        assert one.info.attempts == other.info.attempts
    return runs


@pytest.mark.parametrize("kind", long_logs.CONSOLE)
@pytest.mark.parametrize("seed", range(5))
def test_as_line_by_line(kind: str, seed: int, tmp_path: Path, taken: list[int]) -> None:
    numbers = random.Random(seed)
    lines: list[str] = []
    for step in range(1, STEPS):
        at = step if seed < 3 or step < STEPS // 2 else step - 30  # then another launch
        lines += long_logs.CONSOLE[kind](at, numbers)
        if seed % 2 and numbers.random() < 0.03:
            lines += numbers.choices(NOISE, k=2)
    the_same(log(tmp_path, "run.log", "\n".join(lines)))
    assert sum(taken) > STEPS // 3 or seed % 2 or kind in SPARSE


def rows(spelled: str, count: int = 60) -> Iterator[str]:
    for step in range(1, count):
        word = spelled if step == count // 2 else f"{step / 7:.4f}"
        yield f"step {step} | loss: {word} | grad_norm: {step * 0.5:.2e} | lr: 1e-05"


@pytest.mark.parametrize(
    "spelled",
    [
        "nan", "inf", "-3.25", "+1.5", ".5", "7", "7.", "1e-400", "1E+05", "1,234.5", "12%", "5ms",
        "1.2.3", "--", "None", "0.123456789012345678901234567890", "9" * 30, "1e5", "3.5e",
    ],
)  # fmt: skip
def test_one_number_that_is_spelled_in_another_way(
    spelled: str, tmp_path: Path, taken: list[int]
) -> None:
    the_same(log(tmp_path, "run.log", "\n".join(rows(spelled))))
    assert len(taken) >= 1


def test_every_number_is_at_its_step(tmp_path: Path, taken: list[int]) -> None:
    (run,) = open_runs(log(tmp_path, "run.log", "\n".join(rows("-0.125"))))
    loss = run.steps.series("loss")
    assert loss is not None
    assert loss.steps.tolist() == list(range(1, 60))
    assert loss.values.tolist() == [
        -0.125 if step == 30 else float(f"{step / 7:.4f}") for step in range(1, 60)
    ]
    assert sum(taken) > 40


def test_what_is_printed_behind_rows_is_of_their_steps(tmp_path: Path, taken: list[int]) -> None:
    lines = []
    for step in range(1, 80):
        lines.append(f"step {step} | loss: {step / 7:.4f} | grad_norm: 0.5")
        lines.append(f"average reward score: {step / 3:.3f}")
        lines.append(f"queue depth: {step * 2}, zorp: {step / 2}")
    (run,) = the_same(log(tmp_path, "run.log", "\n".join(lines)))
    reward, zorp = run.steps.series("reward_mean"), run.steps.series("zorp")
    assert reward is not None
    assert zorp is not None
    assert reward.steps.tolist() == list(range(1, 80))
    assert reward.values.tolist() == [float(f"{step / 3:.3f}") for step in range(1, 80)]
    assert dict(zip(zorp.steps.tolist(), zorp.values.tolist(), strict=True))[40] == 20.0
    assert sum(taken) > 120


def test_names_behind_some_rows_only(tmp_path: Path, taken: list[int]) -> None:
    lines = []
    for step in range(1, 80):
        lines.append(f"step {step} | loss: {step / 7:.4f} | grad_norm: 0.5")
        lines += [f"queue depth: {step * place}" for place in range(step % 3)]
    the_same(log(tmp_path, "run.log", "\n".join(lines)))
    assert sum(taken) > 60


def test_panels(tmp_path: Path, taken: list[int]) -> None:
    lines = [PANEL.format(step / 3, step * 64, 7 / step) for step in range(1, 90)]
    (run,) = the_same(log(tmp_path, "run.log", "\n".join(lines)))
    reward = run.steps.series("reward_mean")
    assert reward is not None
    assert reward.steps.tolist() == [step * 64 for step in range(1, 90)]
    assert reward.values.tolist() == [float(f"{step / 3:.4f}") for step in range(1, 90)]
    assert sum(taken) > 200


def test_a_failure_among_rows_is_told_as_ever(tmp_path: Path, taken: list[int]) -> None:
    failure = ["Traceback (most recent call last):", '  File "a.py", line 1', "OSError: 5"]
    before, after = list(rows("0.5"))[:45], list(rows("0.5"))[29:]
    (run,) = the_same(log(tmp_path, "run.log", "\n".join([*before, *failure, *after, *failure])))
    assert [(event.kind, event.step) for event in run.events] == [("crash", 45), ("crash", 59)]
    assert len(taken) >= 2


def test_a_row_that_is_said_twice_counts_once(tmp_path: Path, taken: list[int]) -> None:
    lines = [line for line in rows("0.5") for _ in range(1 + (line.split()[1] in {"30", "31"}))]
    (run,) = the_same(log(tmp_path, "run.log", "\n".join(lines)))
    assert len(run.steps) == 59
    assert taken


def test_no_lines_have_no_numbers() -> None:
    assert Tokens(b"loss 1\n", np.array([False] * 5 + [True, False])).of([]).size == 0
