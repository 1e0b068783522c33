"""What `rlprobe record` makes of lines of output: the rows that a scan of the same log has."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from rlprobe.importers import open_runs
from rlprobe.launcher.output import Lines, OutputRows
from rlprobe.recorder.recorder import Recorder
from rlprobe.store import manifest
from rlprobe.store.recording import Recording

Written = list[tuple[int, dict[str, float]]]

MEGATRON = (
    " [2024-01-01 00:00:00] iteration {:8d}/     100 | consumed samples: 80 | elapsed time per "
    "iteration (ms): 1234.0 | learning rate: 1.000E-05 | lm loss: 1.5E+00 | loss scale: -1.0 "
    "| grad norm: {} | number of skipped iterations:   0 | number of nan iterations:   0 |"
)
NANOCHAT = (
    "step {:05d}/21400 (0.06%) | loss: 0.520000 | lrm: 1.00 | dt: 643.21ms | tok/sec: 814,785 "
    "| bf16_mfu: 45.00 | total time: 1.2m"
)
BAR = "  5%|5         | {}/200 [00:01<00:20,  9.0it/s]"
TRAINER = "{{'loss': {}, 'grad_norm': 1.0, 'learning_rate': 1e-6}}"


def written(lines: list[str]) -> Written:
    rows: Written = []
    output = OutputRows(lambda step, row: rows.append((step, row)), lambda: True)
    output.read("".join(f"{line}\n" for line in lines).encode())
    output.finish()
    return rows


def recorded(lines: list[str], run_dir: Path) -> Recording:
    """What the launcher's own recorder stores of these lines."""
    recorder = Recorder(run_dir, rank=manifest.LAUNCHER_RANK, signals=False)
    output = OutputRows(lambda step, row: recorder.step(step, **row), lambda: True)
    output.read("".join(f"{line}\n" for line in lines).encode())
    output.finish()
    recorder.close()
    return Recording(run_dir)


def test_milliseconds_of_megatron_are_stored_as_seconds(tmp_path: Path) -> None:
    frame = recorded([MEGATRON.format(10, "0.000"), MEGATRON.format(20, "0.500")], tmp_path).steps
    step_time, grad_norm = frame.series("step_time"), frame.series("grad_norm")
    assert step_time is not None
    assert step_time.values.tolist() == [1.234, 1.234]
    assert grad_norm is not None
    assert (grad_norm.steps.tolist(), grad_norm.values.tolist()) == ([20], [0.5])
    assert "loss_scale" not in frame.names


def test_percents_of_nanochat_are_stored_as_a_fraction(tmp_path: Path) -> None:
    series = recorded([NANOCHAT.format(12)], tmp_path).steps.series("mfu")
    assert series is not None
    assert series.values.tolist() == [0.45]


LOGS = {
    "megatron": [MEGATRON.format(step, step / 10) for step in (10, 20, 30)],
    "nanochat": [NANOCHAT.format(step) for step in (1, 2, 3)],
    "verl": [f"(Task pid=1) step:{s} - actor/pg_loss:0.{s} - loss:nan" for s in (1, 2)],
    "printed dict": ["Step 3:", "{'loss': 0.5,", " 'reward': 0.25}", "Step 4:", "{'loss': 0.25}"],
    "bar with metrics": [
        f"train: 5%|5 | {n}/200 [00:01<00:20,  9.0it/s, loss=0.{n}, reward=1]" for n in (1, 2, 3)
    ],
    "overflows": [
        "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        "[2024] step=10, skipped=1, lr=[1e-05], mom=[0.9]",
        *(f"step {s} | loss 0.{s}" for s in (11, 12)),
    ],
    "sb3": [
        "-" * 30,
        "| rollout/           |      |",
        "|    ep_rew_mean     | 21.5 |",
        "| time/              |      |",
        "|    total_timesteps | 2048 |",
        "-" * 30,
    ],
    "markdown": ["| Step | Training Loss | reward |", "|---|---|---|", "| 1 | 0.5 | 2 |"],
    "blocks under headings": [
        line
        for step in (1, 2, 3)
        for line in (f"Learning iteration {step}/30", "Mean reward: 0.5", "Mean entropy loss: 0.1")
    ],
    "ranks that say the same": [
        f"[rank{rank}]: step {s} | loss 0.{s}" for s in (1, 2) for rank in (0, 1)
    ],
}


@pytest.mark.parametrize("name", sorted(LOGS))
def test_recording_reads_what_scanning_reads(name: str, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("\n".join(LOGS[name]) + "\n")
    (run,) = open_runs(log)
    frame = run.steps
    assert len(frame)
    by_metric: dict[str, dict[int, float]] = {}
    for step, row in written(LOGS[name]):
        for metric, value in row.items():
            by_metric.setdefault(metric, {})[step] = value
    scanned = {
        series.name: dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))
        for series in map(frame.series, frame.names)
        if series is not None
    }
    assert sorted(by_metric) == sorted(scanned)
    for metric, values in by_metric.items():
        assert values == pytest.approx(scanned[metric], nan_ok=True), metric


def test_rows_are_recorded_as_they_appear() -> None:
    rows: Written = []
    output = OutputRows(lambda step, row: rows.append((step, row)), lambda: True)
    counts = []
    for line in ("step 1 | loss 0.5", TRAINER.format(0.4), BAR.format(2), TRAINER.format(0.3)):
        output.read(f"{line}\n".encode())
        counts.append(len(rows))
    assert counts == [1, 1, 1, 2]
    output.finish()
    assert [step for step, _ in rows] == [1, 2, 3]


def test_a_row_beside_its_bar_has_the_bars_step() -> None:
    lines = [BAR.format(n) + TRAINER.format(n / 10) for n in (10, 20, 30)]
    assert [step for step, _ in written(lines)] == [10, 20, 30]


def test_a_bar_of_an_evaluation_tells_no_step() -> None:
    evaluating = " 50%|5         | 7/14 [00:01<00:20,  9.0it/s]"
    lines = [BAR.format(10), TRAINER.format(0.5), evaluating, BAR.format(10), TRAINER.format(0.4)]
    assert [step for step, _ in written(lines)] == [10, 20]


def test_a_row_and_the_same_with_more_digits_are_one() -> None:
    rows = written(
        [
            "{'loss': 0.123, 'grad_norm': 1.5}",
            "{'loss': 0.12304, 'grad_norm': 1.5001, 'learning_rate': 1e-6}",
            "{'loss': 0.25, 'grad_norm': 1.25}",
        ]
    )
    assert [(step, row["loss"]) for step, row in rows] == [(1, 0.12304), (2, 0.25)]


def test_the_framework_is_told_by_all_rows_so_far() -> None:
    output = OutputRows(lambda step, row: None, lambda: True)
    output.read(b"step 1 | loss 0.5\n")
    assert output.framework == "generic"
    output.read(f"{NANOCHAT.format(2)}\n".encode())
    output.finish()
    assert output.framework == "nanochat"


def test_nothing_is_read_any_more_once_somebody_else_records() -> None:
    asked: list[bool] = []

    def wanted() -> bool:
        asked.append(True)
        return False

    output = OutputRows(lambda step, row: pytest.fail("recorded"), wanted)
    for step in range(100):
        output.read(f"step {step} | loss 0.5\n".encode())
    output.finish()
    assert len(asked) == 1


@pytest.mark.parametrize(
    "line",
    [
        b"{" * 1_000_000,
        b"rewards: [0.1, 0.2]\n" * 60_000,
        b"Mean reward: 0.5\n" * 60_000,
        b"Tried to log to step 1 < 2\n" * 60_000,
        b"OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 2, reducing to 1\n" * 30_000,
        b"  5%|5| 1/200 [00:01<00:20,  9.0it/s]\r" * 30_000,
        b"{'loss': 0.5,\n" * 60_000,
        b"<td>" * 250_000,
        b"epoch 1 reward 0.5\n" * 30_000,
    ],
)
def test_hostile_output_costs_little_time_and_memory(line: bytes) -> None:
    output = OutputRows(lambda step, row: None, lambda: True)
    lines = Lines(output.read)
    started = time.process_time()
    for start in range(0, len(line), 65_536):
        lines.feed(1, line[start : start + 65_536])
    lines.finish()
    assert time.process_time() - started < 10
    reader = output._reader
    held = [len(reader.asides.alone), len(reader.held.lists._lists)]
    held += [len(reader.held.lists._backs), *map(len, reader.held._groups.values())]
    held += [*map(len, reader.blocks._under.values())]
    held += [sum(map(len, reader.held.regular._values.values()))]
    assert max(held) <= 10_001
    output.finish()


def test_values_that_are_not_finite_are_recorded() -> None:
    ((_, row),) = written(["step 1 | loss nan | grad_norm inf"])
    assert math.isnan(row["loss"])
    assert row["grad_norm"] == math.inf
