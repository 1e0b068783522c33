"""trainer_state.json: rows of three kinds in one list, and files that are broken."""

from __future__ import annotations

import contextlib
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from rlprobe.errors import InputError, RlprobeError, UnknownFormatError
from rlprobe.importers import open_runs
from rlprobe.store.run import Run


def state(path: Path, history: Any, **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"log_history": history, **more}))
    return path


def only(path: Path) -> Run:
    (run,) = open_runs(path)
    return run


HISTORY = [
    {"step": 10, "loss": 0.0, "reward": 0.5, "kl": 0.01, "rewards/acc/mean": 0.4, "epoch": 0.1},
    {"step": 10, "eval_loss": 2.0, "eval_reward": 0.25},
    {"step": 20, "loss": 0.1, "reward": math.nan, "kl": None, "note": "text", "odd": "NaN"},
    {"step": 20, "train_runtime": 3.0, "train_loss": 0.05, "reward": 9.0},
]


def test_training_evaluation_and_summary_rows(tmp_path: Path) -> None:
    run = only(state(tmp_path / "trainer_state.json", HISTORY, max_steps=20))
    assert (run.info.source, run.info.framework) == ("hf_trainer_state", "trl")
    assert run.info.settings == {"max_steps": 20}
    reward = run.steps.series("reward_mean")
    assert reward is not None
    assert list(reward.steps) == [10, 20]
    assert reward.values[0] == 0.5
    assert math.isnan(reward.values[1]), "the summary row must not overwrite step 20"
    evaluation = run.steps.series("eval/reward_mean")
    assert evaluation is not None
    assert list(evaluation.steps) == [10]
    kl = run.steps.series("kl_mean")
    assert kl is not None
    assert list(kl.steps) == [10], "null is not logged"
    assert run.info.unmapped == ("odd",)
    assert len(run.steps) == 2, "one row per step; the summary row is left out"


def test_a_bare_list(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps(HISTORY))
    run = only(path)
    assert run.info.source == "json"
    assert list(run.steps.step) == [10, 20]


def test_a_step_that_goes_back_is_a_new_attempt(tmp_path: Path) -> None:
    history = [{"step": step, "loss": 1.0} for step in (1, 2, 3, 2, 3, 4)]
    run = only(state(tmp_path / "trainer_state.json", history))
    assert [(a.first_step, a.last_step) for a in run.info.attempts] == [(1, 3), (2, 4)]


def test_rows_that_are_no_rows_cost_themselves(tmp_path: Path) -> None:
    history = [{"step": 1, "loss": 1.0}, "text", {"loss": 2.0}, {"step": 1.5}, {"step": 2}]
    run = only(state(tmp_path / "trainer_state.json", history))
    assert len(run.steps) == 2
    assert [problem.message for problem in run.problems] == [
        "log_history[1] left out: not an object",
        "log_history[2] left out: no step",
        "log_history[3] left out: no step",
    ]


def test_checkpoints_beside_the_file_are_restore_points(tmp_path: Path) -> None:
    state(tmp_path / "checkpoint-5" / "trainer_state.json", HISTORY)
    state(tmp_path / "checkpoint-15" / "trainer_state.json", HISTORY)
    run = only(tmp_path)
    assert [event.step for event in run.events] == [5, 15]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"", "empty"),
        ("a.json", b"\x00\x01\x02", "no known log format"),
        ("trainer_state.json", b'{"log_history": [{"step": 1, "lo', "as JSON"),
        ("trainer_state.json", b'{"log_history": 3}', "no log_history"),
        ("trainer_state.json", b'{"log_history": []}', "no rows"),
        ("trainer_state.json", b'{"log_history":' + b"[" * 50_000, "as JSON"),
        ("a.txt", b"hello", "no metrics in it"),
    ],
)
def test_bad_files_are_told(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        open_runs(path)
    assert str(path) in str(caught.value)


def test_missing_and_empty_places(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        open_runs(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty"):
        open_runs(tmp_path / "empty")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_text("y")
    with pytest.raises(UnknownFormatError, match="no recording"):
        open_runs(tmp_path / "other")


def test_jsonl_with_a_torn_last_line_and_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(
        b'{"step": 1, "loss": NaN}\n[1]\n\n{"step": 2, "loss": "inf"}\n{"step": 3, "lo'
    )
    run = only(path)
    loss = run.steps.series("loss")
    assert loss is not None
    assert math.isnan(loss.values[0])
    assert loss.values[1] == math.inf
    assert [p.message.split(":")[0] for p in run.problems] == [
        "line 2 left out",
        "line 5 left out",
    ]


def test_jsonl_without_steps_is_numbered_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"loss": 1}\n{"loss": 2}\n')
    run = only(path)
    assert list(run.steps.step) == [1, 2]
    assert run.info.notes == ("steps not logged: numbered by row",)


@pytest.mark.parametrize("seed", range(200))
def test_mutated_files_raise_nothing_but_our_own(tmp_path: Path, seed: int) -> None:
    mutations = random.Random(seed)
    source = json.dumps({"log_history": HISTORY}) if seed % 2 else '{"step": 1, "loss": 2}\n' * 5
    content = bytearray(source.encode())
    for _ in range(mutations.randint(1, 12)):
        place = mutations.randrange(len(content))
        content[place : place + mutations.randint(0, 4)] = mutations.randbytes(
            mutations.randint(0, 4)
        )
    path = tmp_path / ("trainer_state.json" if seed % 2 else "x.jsonl")
    path.write_bytes(content)
    with contextlib.suppress(RlprobeError):
        open_runs(path)
