"""A step that is logged in parts is one row: read, queried, shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from rlprobe import Recorder
from rlprobe.store import one_per_step
from rlprobe.store.frame import Column, Frame
from rlprobe.store.recording import Recording
from rlprobe.store.sql import query

Screen = Callable[..., str]
NONE = None
NAN = float("nan")


def frame(rows: Sequence[tuple[int, ...]], **columns: list[float | None]) -> Frame:
    """A frame of rows of (step, attempt, rank), the time of which is their number."""
    step, attempt, rank = np.array(rows, dtype=np.int64).reshape(-1, 3).T

    def load(name: str) -> Column:
        values = columns[name]
        return (
            np.array([NAN if value is None else value for value in values]),
            np.array([value is not None for value in values]),
        )

    return Frame(step, attempt, rank, np.arange(float(len(rows))), tuple(sorted(columns)), load)


def rows_of(merged: Frame) -> list[tuple[int, int, int, float]]:
    keys = merged.step, merged.attempt, merged.rank, merged.time
    return list(zip(*(key.tolist() for key in keys), strict=True))


def column(merged: Frame, name: str) -> list[float | None]:
    values, valid = merged.load(name)
    return [value if there else None for value, there in zip(values.tolist(), valid, strict=True)]


def test_the_last_logged_value_counts_and_what_is_not_logged_never() -> None:
    merged = one_per_step.merged(
        frame(
            [(1, 1, 0), (2, 1, 0), (2, 1, 0), (2, 1, 0), (3, 1, 0)],
            loss=[5.0, 4.0, NONE, NONE, 3.0],
            eval=[NONE, NONE, 8.0, 7.0, NONE],
            lr=[NONE, NONE, NONE, NONE, NONE],
        )
    )
    assert rows_of(merged) == [(1, 1, 0, 0.0), (2, 1, 0, 1.0), (3, 1, 0, 4.0)]
    assert column(merged, "loss") == [5.0, 4.0, 3.0]
    assert column(merged, "eval") == [None, 7.0, None]
    assert column(merged, "lr") == [None, None, None]


def test_a_nan_is_a_value() -> None:
    merged = one_per_step.merged(frame([(1, 1, 0), (1, 1, 0)], loss=[2.0, NAN]))
    values, valid = merged.load("loss")
    assert valid.tolist() == [True]
    assert np.isnan(values).tolist() == [True]


def test_attempts_and_ranks_are_not_mixed() -> None:
    rows = [(1, 1, 0), (1, 1, 1), (1, 2, 0), (1, 1, 0)]
    merged = one_per_step.merged(frame(rows, loss=[1.0, 2.0, 3.0, 4.0]))
    assert rows_of(merged) == [(1, 1, 0, 0.0), (1, 1, 1, 1.0), (1, 2, 0, 2.0)]
    assert column(merged, "loss") == [4.0, 2.0, 3.0]


def test_rows_that_come_back_to_an_earlier_step_go_there() -> None:
    rows = [(3, 1, 0), (1, 1, 0), (2, 1, 0), (1, 1, 0), (3, 1, 0)]
    merged = one_per_step.merged(
        frame(rows, loss=[3.0, 1.0, 2.0, NONE, 4.0], b=[NONE] * 3 + [9, 8])
    )
    assert merged.step.tolist() == [3, 1, 2]
    assert column(merged, "loss") == [4.0, 1.0, 2.0]
    assert column(merged, "b") == [8.0, 9.0, None]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [(1, 1, 0)],
        [(1, 1, 0), (2, 1, 0), (1, 2, 0), (2, 2, 0)],
        [(1, 1, 0), (2, 1, 0), (1, 1, 1), (2, 1, 1)],
        [(2, 1, 0), (1, 1, 0)],
    ],
)
def test_a_frame_without_repeats_is_left_as_it_is(rows: list[tuple[int, ...]]) -> None:
    stored = frame(rows, loss=[1.0] * len(rows))
    assert one_per_step.merged(stored) is stored


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_a_plain_loop_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 60))
    rows = [tuple(int(x) for x in rng.integers(1, (8, 3, 3))) for _ in range(size)]
    loss = [None if rng.random() < 0.4 else float(value) for value in rng.random(size)]
    expected: dict[tuple[int, ...], float | None] = {}
    for key, value in zip(rows, loss, strict=True):
        expected[key] = expected.get(key) if value is None else value
    merged = one_per_step.merged(frame(rows, loss=loss))
    assert [row[:3] for row in rows_of(merged)] == list(expected)
    assert column(merged, "loss") == list(expected.values())


def test_a_million_rows() -> None:
    size = 1_000_000
    ones = np.ones(size, dtype=np.int64)
    values, valid = np.random.default_rng(0).random(size), np.arange(size) % 2 == 0
    step = np.arange(size, dtype=np.int64) // 2

    def merge(step: np.ndarray) -> float:
        stored = Frame(step, ones, ones, values, ("loss",), lambda _: (values, valid))
        begun = time.perf_counter()
        one_per_step.merged(stored).load("loss")
        return time.perf_counter() - begun

    assert merge(step) < 2
    assert merge(np.arange(size, dtype=np.int64)) < 0.05


# --- a recording ---------------------------------------------------------------------------------


def record(run_dir: Path) -> None:
    """Steps of which some are evaluated, and added to, after they were written."""
    with Recorder(run_dir, framework="trl") as recorder:
        for step in range(1, 41):
            recorder.step(step, loss=1.0 / step, grad_norm=1.0, learning_rate=1e-5)
            recorder.rank_step(step, step_time=1.0)
            if step % 10 == 0:
                recorder.flush()
                recorder.step(step, eval_loss=2.0 / step)
                recorder.rank_step(step, memory_peak=3.0)
                recorder.flush()
                recorder.step(step, entropy=0.5)


def test_one_row_per_step_with_an_evaluation(tmp_path: Path, screen: Screen) -> None:
    record(tmp_path)
    frame = Recording(tmp_path).steps
    assert frame.step.tolist() == list(range(1, 41))
    for table in ("steps", "lineage", "ranks"):
        asked = f"select count(*), count(distinct step) from {table}"
        assert query(Recording(tmp_path), asked).rows == ((40, 40),)
    asked = 'select step, loss, "eval/loss", entropy from lineage where "eval/loss" is not null'
    assert sorted(query(Recording(tmp_path), asked).rows) == [
        (step, 1.0 / step, 2.0 / step, 0.5) for step in (10, 20, 30, 40)
    ]
    asked = "select step, step_time, memory_peak from ranks where step between 10 and 11"
    assert sorted(query(Recording(tmp_path), asked).rows) == [(10, 1.0, 3.0), (11, 1.0, None)]
    seen = screen("query", tmp_path, "select step, loss, entropy from steps where step = 20")
    assert seen.split() == ["step", "loss", "entropy", "20", "0.05", "0.5"]
    shown = screen("show", tmp_path, "--step", "20", "--all")
    for line in ("loss 0.05", "eval/loss 0.1", "entropy 0.5", "grad_norm 1 "):
        assert line in " ".join(shown.split()), shown


def test_a_query_of_other_tables_reads_no_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path)
    monkeypatch.setattr(Recording, "steps", property(lambda _: 1 / 0))
    assert query(Recording(tmp_path), "select count(*) from events").rows == ((2,),)
