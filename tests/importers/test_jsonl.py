"""JSON Lines in their dialects."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlprobe.importers.documents import json_blocks
from tests.importers.reading import only, points, read


def lines(*rows: Mapping[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_verl_writes_null_for_what_is_not_finite(tmp_path: Path) -> None:
    text = lines(
        {"step": 1, "data": {"actor/pg_loss": 0.5, "actor/grad_norm": 1.5}},
        {
            "step": 2,
            "data": {"actor/pg_loss": None, "actor/grad_norm": 0.5, "perf/mfu/actor": 0.25},
        },
    )
    run = read(tmp_path, "run.jsonl", text)
    assert run.info.framework == "verl"
    (_, first), (_, second) = points(run, "policy_loss")
    assert first == 0.5
    assert math.isnan(second)
    assert points(run, "mfu") == [(2, 0.25)]


def test_null_elsewhere_is_not_logged(tmp_path: Path) -> None:
    text = lines({"current_steps": 10, "total_steps": 20, "loss": 0.5, "reward": None, "lr": 1e-6})
    run = read(tmp_path, "trainer_log.jsonl", text)
    assert run.info.framework == "llamafactory"
    assert points(run, "loss") == [(10, 0.5)]
    assert points(run, "reward_mean") == []


def test_prime_rl_merges_rows_and_sees_what_was_dropped(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for step in range(20):
        rows += [
            {"step": step, "time": 1.0, "perf/throughput": 100.0},
            {"step": step, "time": 2.0, "optim/lr": 1e-6, "loss/mean": 0.5, "optim/grad_norm": 1.0},
        ]
    del rows[13]["loss/mean"], rows[13]["optim/grad_norm"]
    run = read(tmp_path, "metrics.jsonl", lines(*rows))
    assert run.info.framework == "prime_rl"
    assert len(run.info.attempts) == 1
    assert len(run.steps) == 20
    bad = [step for step, value in points(run, "grad_norm") if math.isnan(value)]
    assert bad == [6]
    assert any("was not finite" in note for note in run.info.notes)


def test_ms_swift_tells_the_step_as_text(tmp_path: Path) -> None:
    row = {"loss": 0.5, "global_step/max_steps": "12/500", "memory(GiB)": 40.5, "reward_std": 0.1}
    run = read(tmp_path, "logging.jsonl", lines(row, {**row, "global_step/max_steps": "13/500"}))
    assert points(run, "loss") == [(12, 0.5), (13, 0.5)]
    assert points(run, "memory_reserved") == [(12, 40.5), (13, 40.5)]


def test_rows_of_which_one_has_lost_its_step_are_numbered(tmp_path: Path) -> None:
    text = lines({"loss": 0.5, "reward": 1.0}, {"loss": 0.25, "reward": 2.0, "step": 900})
    run = read(tmp_path, "run.jsonl", text)
    assert points(run, "loss") == [(1, 0.5), (2, 0.25)]


def test_the_trainers_step_counts_and_not_that_of_wandb(tmp_path: Path) -> None:
    text = lines(
        {"_step": 0, "train/loss": 0.5, "train/global_step": 10},
        {"_step": 1, "table": "x", "note": 1},
        {"_step": 2, "train/loss": 0.25, "train/global_step": 20},
    )
    run = read(tmp_path, "history.jsonl", text)
    assert points(run, "loss") == [(10, 0.5), (20, 0.25)]
    assert run.info.notes == ("1 rows without `train/global_step` left out",)


def test_open_instruct_counts_episodes_as_global_step(tmp_path: Path) -> None:
    text = lines({"global_step": 4096, "training_step": 1, "scores": 0.5, "val/stop_rate": 0.75})
    run = read(tmp_path, "run.jsonl", text)
    assert points(run, "reward_mean") == [(1, 0.5)]
    assert points(run, "truncation_rate") == [(1, 0.25)]


def test_tinker_summary_rows_have_no_step(tmp_path: Path) -> None:
    text = lines(
        {"step": 0, "progress/batch": 0, "env/all/by_group/frac_mixed": 0.25, "optim/lr": 1e-5},
        {"step": 1, "progress/batch": 1, "env/all/by_group/frac_mixed": 0.5, "optim/lr": 1e-5},
        {"final/score": 1.0},
    )
    run = read(tmp_path, "metrics.jsonl", text)
    assert points(run, "zero_variance_group_fraction") == [(0, 0.75), (1, 0.5)]


def test_nested_metrics_and_wrappers(tmp_path: Path) -> None:
    text = lines({"step": 1, "metrics": {"loss": 0.5, "reward": {"mean": 0.25}}, "tags": ["a"]})
    run = read(tmp_path, "run.jsonl", text)
    assert points(run, "loss") == [(1, 0.5)]
    assert points(run, "reward_mean") == [(1, 0.25)]


def test_spellings_of_what_is_not_finite(tmp_path: Path) -> None:
    text = (
        '{"step": 1, "loss": NaN}\n{"step": 2, "loss": "Infinity"}\n{"step": 3, "loss": "-inf"}\n'
        '{"step": 4, "loss": -Infinity}\n{"step": 5, "loss": 1e999}\n'
        '{"step": 6, "loss": "np.float64(0.5)"}\n'
    )
    found = points(read(tmp_path, "run.jsonl", text), "loss")
    assert math.isnan(found[0][1])
    assert found[1:] == [(2, math.inf), (3, -math.inf), (4, -math.inf), (5, math.inf), (6, 0.5)]


def test_a_restart_and_a_late_row(tmp_path: Path) -> None:
    restarted = lines(*({"step": step, "loss": 0.5} for step in (1, 2, 3, 2, 3)))
    run = read(tmp_path, "run.jsonl", restarted)
    assert [(a.first_step, a.last_step) for a in run.info.attempts] == [(1, 3), (2, 3)]
    late = lines({"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}, {"step": 1, "reward": 1.0})
    run = read(tmp_path, "late.jsonl", late)
    assert len(run.info.attempts) == 1
    assert points(run, "reward_mean") == [(1, 1.0)]


def test_rows_that_interleave_are_no_thousand_launches(tmp_path: Path) -> None:
    rows = [{"step": step + back, "loss": float(step)} for step in range(200) for back in (1, 0)]
    run = read(tmp_path, "run.jsonl", lines(*rows))
    assert len(run.info.attempts) == 1
    assert any("come again" in note for note in run.info.notes)


def test_mini_batches_of_one_step_are_no_launches(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": float(part)} for step in range(50) for part in range(4)]
    run = read(tmp_path, "run.jsonl", lines(*rows))
    assert len(run.info.attempts) == 1
    assert points(run, "loss")[0] == (0, 3.0)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    text = lines({"step": 1, "loss": 0.5, "note": "é"}, {"step": 2, "loss": 0.25})
    assert points(read(tmp_path, "run.jsonl", text.encode(encoding)), "loss") == [
        (1, 0.5),
        (2, 0.25),
    ]


def test_a_row_in_latin_1_is_read(tmp_path: Path) -> None:
    text = lines({"step": 1, "loss": 0.5}).encode() + b'{"step": 2, "loss": 0.25, "note": "\xe9"}\n'
    assert points(read(tmp_path, "run.jsonl", text), "loss") == [(1, 0.5), (2, 0.25)]


def big(rows: int, special: Mapping[int, str]) -> str:
    made = []
    for step in range(rows):
        row = {"step": step, "loss": step / 7, "reward": step, "note": "x" * 100, "n": {"a": 0.5}}
        made.append(special.get(step, json.dumps(row)))
    return "\n".join(made) + "\n"


@pytest.mark.parametrize(
    "special",
    [
        {},
        {5: '{"step": 5, "loss": NaN, "reward": 5}'},
        {5: "torn {", 20_000: '{"step": 20000, "loss": "text"}'},
        {7: '{"step": 7, "loss": 1, "loss": 2}'},
        {7: '{"step": 7, "loss": 123456789012345678901234567890, "reward": true}'},
        {8: '{"loss": 0.5}'},
    ],
)
def test_blocks_read_the_same_as_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, special: Mapping[int, str]
) -> None:
    text = big(25_000, special)
    assert len(text) > json_blocks.WORTHWHILE_BYTES
    fast = read(tmp_path, "fast.jsonl", text)
    monkeypatch.setattr(json_blocks, "WORTHWHILE_BYTES", 1 << 60)
    slow = read(tmp_path, "slow.jsonl", text)
    assert fast.steps.names == slow.steps.names
    assert fast.steps.step.tolist() == slow.steps.step.tolist()
    for name in fast.steps.names:
        ours, theirs = fast.steps.load(name), slow.steps.load(name)
        assert ours[1].tolist() == theirs[1].tolist()
        assert repr(ours[0].tolist()) == repr(theirs[0].tolist())
    assert [p.message for p in fast.problems] == [p.message for p in slow.problems]


def test_a_torn_line_in_a_large_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(big(25_000, {}) + '{"step": 25000, "lo')
    (problem,) = only(path).problems
    assert problem.message.startswith("line 25001 left out: not JSON")


def test_json_between_other_text_is_a_console_log(tmp_path: Path) -> None:
    text = "starting\n" + lines({"step": 3, "loss": 0.5, "kl": None}) + "done\n"
    run = read(tmp_path, "run.log", text)
    assert run.info.source == "console"
    assert points(run, "loss") == [(3, 0.5)]
