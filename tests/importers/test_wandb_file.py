"""`.wandb` files: history under either kind of key, the step that counts, damage."""

from __future__ import annotations

import math
import random
import time
from pathlib import Path

import pytest

from rlprobe.errors import EmptyRunError, InputError, RlprobeError
from rlprobe.importers import open_runs
from rlprobe.importers.source import Source
from rlprobe.importers.trackers.wandb import WandbFile
from rlprobe.store.run import Run
from tests.importers import encoders as enc


def write(path: Path, *records: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(enc.wandb_bytes(records))
    return path


def only(path: Path) -> Run:
    (run,) = open_runs(path)
    return run


def points(run: Run, name: str) -> list[tuple[int, float]]:
    series = run.steps.series(name)
    return [] if series is None else list(zip(series.steps.tolist(), series.values, strict=True))


@pytest.mark.parametrize("nested", [True, False])
def test_history_with_non_finite_numbers(tmp_path: Path, nested: bool) -> None:
    values = [0.30000000000000004, math.nan, math.inf, -math.inf]
    rows = [
        enc.history({"_step": step, "loss": value, "_runtime": 3.5}, nested=nested)
        for step, value in enumerate(values)
    ]
    run = only(write(tmp_path / "run-a.wandb", *rows))
    assert run.info.source == "wandb"
    found = points(run, "loss")
    assert found[0] == (0, 0.30000000000000004)
    assert math.isnan(found[1][1])
    assert found[2:] == [(2, math.inf), (3, -math.inf)]
    assert run.steps.names == ("loss",)


def test_the_step_field_of_older_files(tmp_path: Path) -> None:
    rows = [enc.history({"loss": 1.0}, step=step) for step in (7, 9)]
    assert points(only(write(tmp_path / "run-a.wandb", *rows)), "loss") == [(7, 1.0), (9, 1.0)]


def test_the_trainers_step_counts_not_the_calls_of_log(tmp_path: Path) -> None:
    rows = [
        row
        for step in (10, 20)
        for row in (
            enc.history({"_step": step // 5, "train/loss": 1.0, "train/global_step": step}),
            enc.history({"_step": step // 5 + 1, "extra": 2.0}),
        )
    ]
    run = only(write(tmp_path / "run-a.wandb", *rows))
    assert run.steps.step.tolist() == [10, 20]
    assert points(run, "extra") == [(10, 2.0), (20, 2.0)]
    assert "step read from train/global_step, not from _step" in run.info.notes
    assert any("2 rows without a step" in note for note in run.info.notes)


def test_the_calls_of_log_count_where_the_user_asks_for_them(tmp_path: Path) -> None:
    rows = [
        enc.history({"_step": call, "train/loss": call / 8, "train/global_step": 10 * call})
        for call in (1, 2, 3)
    ]
    path = write(tmp_path / "run-a" / "run-a.wandb", *rows)
    for place in (path, path.parent):
        assert points(only(place), "loss") == [(10, 0.125), (20, 0.25), (30, 0.375)]
        (run,) = open_runs(place, "_step")
        assert points(run, "loss") == [(1, 0.125), (2, 0.25), (3, 0.375)]
        (run,) = open_runs(place, "train/global_step")
        assert points(run, "loss") == [(10, 0.125), (20, 0.25), (30, 0.375)]
        with pytest.raises(InputError, match="counter"):
            open_runs(place, "tokens")


def test_the_axis_that_define_metric_named(tmp_path: Path) -> None:
    rows = [enc.history({"_step": n, "my/updates": 10 * n, "loss": 1.0}) for n in range(3)]
    run = only(write(tmp_path / "run-a.wandb", enc.metric_record("my/updates"), *rows))
    assert run.steps.step.tolist() == [0, 10, 20]


def test_the_axis_of_evaluations_does_not_hold_training_still(tmp_path: Path) -> None:
    rows: list[bytes] = []
    for n in range(20):
        rows.append(enc.history({"_step": len(rows), "loss": float(n)}))
        if n % 5 == 4:
            evaluation = {"_step": len(rows), "val/acc": 0.5, "val_step": n // 5}
            rows.append(enc.history(evaluation))
    run = only(write(tmp_path / "run-a.wandb", enc.metric_record("val_step", "val/*"), *rows))
    loss = run.steps.series("loss")
    assert loss is not None
    assert loss.values.tolist() == [float(n) for n in range(20)]
    assert loss.steps.tolist() == [n + n // 5 for n in range(20)]


def test_episodes_are_not_the_step_where_training_steps_are_logged(tmp_path: Path) -> None:
    rows = [
        enc.history({"_step": n, "global_step": 512 * n, "training_step": n, "loss": 1.0})
        for n in range(1, 4)
    ]
    assert only(write(tmp_path / "run-a.wandb", *rows)).steps.step.tolist() == [1, 2, 3]


def test_settings_media_and_nested_keys(tmp_path: Path) -> None:
    run = only(
        write(
            tmp_path / "run-a.wandb",
            enc.run_record({"beta": 0.04, "old": {"value": 3, "desc": None}, "_wandb": {"v": 1}}),
            enc.history(
                {
                    "loss": 1.0,
                    "table": {"_type": "table-file", "size": 30},
                    "flat/_type": "histogram",
                    "flat/bins": 3,
                    "extra": {"mean": 0.5},
                    "text": "hello",
                    "flag": True,
                }
            ),
        )
    )
    assert run.info.settings == {"beta": 0.04, "old": 3}
    assert set(run.steps.names) == {"loss", "extra/mean", "flag"}


def test_a_record_over_many_blocks(tmp_path: Path) -> None:
    row = {f"metric-{index}": float(index) for index in range(5000)}
    small = enc.history({"loss": 1.0})
    run = only(write(tmp_path / "run-a.wandb", small, enc.history(row), small))
    assert len(run.steps.names) == 5001
    assert run.problems == ()


def test_a_run_that_died_tells_how(tmp_path: Path) -> None:
    run = only(
        write(
            tmp_path / "run-a.wandb",
            enc.history({"loss": 1.0}),
            enc.output_record("step 1\n"),
            enc.output_record("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate\n"),
            enc.exit_record(1),
        )
    )
    (crash,) = run.events
    assert (crash.kind, crash.data["exit_code"]) == ("crash", 1)
    assert "out of memory" in crash.message
    assert crash.data["tail"][0] == "step 1"


def test_an_orderly_end_is_no_event(tmp_path: Path) -> None:
    path = write(tmp_path / "run-a.wandb", enc.history({"loss": 1.0}), enc.exit_record(0))
    assert only(path).events == ()


def test_the_run_directory_is_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "wandb" / "offline-run-20260101_000000-a"
    write(folder / "run-a.wandb", enc.history({"loss": 1.0}))
    (folder / "files").mkdir()
    (folder / "files" / "output.log").write_text("{'loss': '9.0', 'epoch': '0.1'}\n" * 3)
    (tmp_path / "wandb" / "latest-run").symlink_to(folder.name)
    for place in (folder, tmp_path / "wandb" / "latest-run", tmp_path / "wandb"):
        assert points(only(place), "loss") == [(0, 1.0)]


ROWS = [enc.history({"_step": n, "loss": float(n)}) for n in range(1, 6)]


def test_truncation_at_every_byte(tmp_path: Path) -> None:
    whole = enc.wandb_bytes(ROWS)
    path = tmp_path / "run-a.wandb"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        try:
            (reading,) = WandbFile().read(Source(path))
        except InputError:
            assert size < 7 + len(ROWS[0]) + 7
        else:
            values = reading.rows.columns()["loss"][0].tolist()
            assert values == [1.0, 2.0, 3.0, 4.0, 5.0][: len(values)]
            missing = len(values) < 5
            assert bool(reading.problems) == (missing and size not in _ends())


def _ends() -> set[int]:
    sizes = [7 + len(row) for row in ROWS]
    return {7 + sum(sizes[:count]) for count in range(len(ROWS) + 1)}


def test_any_byte_may_be_wrong(tmp_path: Path) -> None:
    whole = enc.wandb_bytes(ROWS)
    random_ = random.Random(2)
    path = tmp_path / "run-a.wandb"
    begun = time.monotonic()
    for place in range(7, len(whole)):
        data = bytearray(whole)
        data[place] ^= random_.randrange(1, 256)
        path.write_bytes(data)
        try:
            (reading,) = WandbFile().read(Source(path))
        except RlprobeError:
            continue
        assert reading.problems
        assert set(reading.rows.columns()["loss"][0].tolist()) <= {1.0, 2.0, 3.0, 4.0, 5.0}
    assert time.monotonic() - begun < 30


def test_damage_costs_the_rest_of_its_block(tmp_path: Path) -> None:
    rows = [enc.history({"_step": n, "loss": float(n), "pad": "x" * 1000}) for n in range(100)]
    data = bytearray(enc.wandb_bytes(rows))
    data[7 + 4] ^= 0xFF  # in the length of the first record
    path = tmp_path / "run-a.wandb"
    path.write_bytes(data)
    run = only(path)
    first = int(run.steps.step[0])
    assert run.steps.step.tolist() == list(range(first, 100))
    assert 25 < first < 40, "a block holds about 31 of these rows"
    assert "damaged" in run.problems[0].message


def test_a_record_whose_length_is_right_is_lost_alone(tmp_path: Path) -> None:
    data = bytearray(enc.wandb_bytes(ROWS))
    data[7 + len(ROWS[0]) + 7 + 12] ^= 0xFF
    path = tmp_path / "run-a.wandb"
    path.write_bytes(data)
    run = only(path)
    assert run.steps.step.tolist() == [1, 3, 4, 5]
    assert "one record left out" in run.problems[0].message


def test_without_history(tmp_path: Path) -> None:
    with pytest.raises(EmptyRunError, match="no history"):
        WandbFile().read(Source(write(tmp_path / "run-a.wandb", enc.run_record({"a": 1}))))
