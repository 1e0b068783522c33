"""Shards: whatever is interrupted where, every row is read once."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlprobe import Recorder
from rlprobe.errors import InputError, NewerFormatError
from rlprobe.store import arrow, layout, manifest, shard_file, shards
from rlprobe.store.layout import recordings_in
from rlprobe.store.recording import Recording
from rlprobe.store.table_shards import TableShards
from rlprobe.values import Problem


def table(first: int, count: int = 1) -> pa.Table:
    steps = np.arange(first, first + count)
    return pa.table([arrow.from_numpy(steps, pa.int64())], ["step"])


def write(directory: Path, count: int, writer: str = "w") -> list[layout.ShardName]:
    directory.mkdir(parents=True, exist_ok=True)
    names = [layout.ShardName(1, 0, writer, number, number) for number in range(count)]
    for name in names:
        shards.write(directory, name, table(name.first))
    return names


def read(directory: Path) -> list[int]:
    problems: list[Problem] = []
    opened = TableShards(
        directory.parent,
        directory.name,
        problems.append,
        lambda _name, file, _remark: arrow.integers(file.read()["step"]).tolist(),
    )
    assert problems == []
    return sorted(itertools.chain.from_iterable(opened.parts))


@settings(max_examples=30, deadline=None)
@given(count=st.integers(8, 24), deleted=st.integers(0, 8), start=st.integers(0, 16))
def test_a_merge_killed_at_any_point_loses_and_doubles_nothing(
    tmp_path_factory: pytest.TempPathFactory, count: int, deleted: int, start: int
) -> None:
    directory = tmp_path_factory.mktemp("run") / "steps"
    names = write(directory, count)
    start = min(start, count - 8)
    before = {str(name): (directory / str(name)).read_bytes() for name in names}
    shards.merge(directory, names[start : start + 8])
    for name in names[start + deleted : start + 8]:  # the kill came before these deletes
        (directory / str(name)).write_bytes(before[str(name)])
    assert read(directory) == list(range(count))


def test_merging_keeps_the_number_of_files_bounded(tmp_path: Path) -> None:
    directory = tmp_path / "steps"
    directory.mkdir()
    own: list[layout.ShardName] = []
    for number in range(600):
        name = layout.ShardName(1, 0, "w", number, number)
        shards.write(directory, name, table(number))
        own.append(name)
        while due := shards.due_for_merge(own):
            merged = shards.merge(directory, due)
            own = [shard for shard in own if shard not in due] + [merged]
    assert len(list(directory.iterdir())) <= 7 * 4
    assert read(directory) == list(range(600))


def test_shards_with_a_gap_between_them_are_not_merged() -> None:
    names = [layout.ShardName(1, 0, "w", n, n) for n in [0, 1, 2, 3, 5, 6, 7, 8]]
    assert shards.due_for_merge(names) == []


def test_names_round_trip() -> None:
    name = layout.ShardName(12, 1023, "trainer.host.77.ab12cd", 5, 700)
    assert layout.ShardName.parse(str(name)) == name
    launcher = layout.ShardName(1, -1, "x", 0, 0)
    assert layout.ShardName.parse(str(launcher)) == launcher
    assert layout.ShardName.parse("part-0.parquet") is None


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    with Recorder(tmp_path / "runs" / "run") as recorder:
        for step in range(1, 11):
            recorder.step(step, loss=float(step))
            recorder.flush()
    return tmp_path / "runs" / "run"


def shard_files(run: Path) -> list[Path]:
    return sorted((run / "steps").glob("*.parquet"))


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5])
def test_a_torn_shard_costs_its_rows_only(recorded: Path, keep: float) -> None:
    torn = shard_files(recorded)[3]
    content = torn.read_bytes()
    torn.write_bytes(content[: int(keep * len(content)) if keep == 0.5 else int(keep)])
    run = Recording(recorded)
    loss = run.steps.series("loss")
    assert loss is not None
    assert len(loss) == 9
    assert [Path(problem.path).name for problem in run.problems] == [torn.name]
    assert "torn" in run.problems[0].message


def test_foreign_parquet_is_named_and_left_out(recorded: Path) -> None:
    foreign = pa.table({"step": [1, 2], "loss": [9.0, 9.0]})
    pq.write_table(foreign, recorded / "steps" / "other.parquet")
    pq.write_table(foreign, recorded / "steps" / str(layout.ShardName(1, 0, "z", 0, 0)))
    run = Recording(recorded)
    assert len(run.steps) == 10
    assert len(run.problems) == 2


def test_a_newer_shard_is_left_out_with_advice(recorded: Path) -> None:
    newer = shard_files(recorded)[0]
    content = pq.read_table(newer)
    metadata = {**content.schema.metadata, shard_file.FORMAT_KEY: b"99"}
    pq.write_table(content.replace_schema_metadata(metadata), newer)
    run = Recording(recorded)
    assert len(run.steps) == 9
    assert "Upgrade rlprobe" in run.problems[0].message


def test_a_newer_recording_is_refused(recorded: Path) -> None:
    (recorded / "run.json").write_text('{"format_version": 2}')
    with pytest.raises(NewerFormatError, match="format 2") as caught:
        Recording(recorded)
    assert caught.value.hint == "Upgrade rlprobe."


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00\xff"])
def test_a_torn_manifest_does_not_hide_the_rows(recorded: Path, content: str) -> None:
    (recorded / "run.json").write_text(content)
    run = Recording(recorded)
    assert len(run.steps) == 10
    assert run.info.attempts[0].ended == "completed"
    assert "run.json" in run.problems[0].path


def test_temporary_files_of_a_kill_are_not_read(recorded: Path) -> None:
    shutil.copy(shard_files(recorded)[0], recorded / "steps" / ".x.parquet.1234.tmp")
    run = Recording(recorded)
    assert len(run.steps) == 10
    assert run.problems == ()


def test_a_directory_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no run\.json"):
        Recording(tmp_path)


def test_recordings_in_a_directory_of_runs(recorded: Path) -> None:
    assert recordings_in(recorded) == [recorded]
    assert recordings_in(recorded.parent) == [recorded]
    assert recordings_in(recorded.parent.parent) == [recorded]


def test_attempts_overlap_and_the_latest_is_the_line(tmp_path: Path) -> None:
    for attempt, (first, last) in enumerate([(1, 150), (101, 120)], start=1):
        with Recorder(tmp_path) as recorder:
            for step in range(first, last + 1):
                recorder.step(step, loss=float(attempt))
    run = Recording(tmp_path)
    assert len(run.steps) == 170
    spans = [(a.first_step, a.last_step) for a in run.info.attempts]
    assert spans == [(1, 150), (101, 120)]


def test_two_launches_racing_get_two_attempts(tmp_path: Path) -> None:
    manifest.prepare(tmp_path)
    numbers = {manifest.claim_attempt(tmp_path, f"launch{n}", 0, f"w{n}", 1) for n in range(5)}
    assert numbers == {1, 2, 3, 4, 5}
    same = {manifest.claim_attempt(tmp_path, "job", rank, f"r{rank}", 8) for rank in range(8)}
    assert same == {6}


values = st.lists(st.none() | st.floats(allow_nan=True), max_size=30)


@settings(max_examples=60, deadline=None)
@given(
    floats=values,
    strings=st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), max_size=20),
    maps=st.lists(
        st.none() | st.lists(st.tuples(st.sampled_from("abc"), st.floats(allow_nan=False))),
        max_size=20,
    ),
    flags=st.lists(st.none() | st.booleans(), max_size=20),
)
def test_arrow_arrays_hold_what_was_put_in(
    floats: list[float | None],
    strings: list[str | None],
    maps: list[list[tuple[str, float]] | None],
    flags: list[bool | None],
) -> None:
    kind = pa.map_(pa.string(), pa.float64())
    for content, type_ in (
        (strings, pa.string()),
        (maps, kind),
        (flags, pa.bool_()),
    ):
        array = arrow.from_list(content, type_)
        array.validate(full=True)
        assert array.to_pylist() == content
    array = arrow.from_list(floats, pa.float64())
    array.validate(full=True)
    back, valid = arrow.floats(pa.chunked_array([array[:7], array[7:]]))
    assert valid.tolist() == [value is not None for value in floats]
    expected = np.array([0.0 if value is None else value for value in floats])
    assert np.array_equal(back[valid], expected[valid], equal_nan=True)
