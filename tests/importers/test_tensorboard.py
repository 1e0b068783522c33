"""TensorBoard event files: every point, restarts, tensors, damage."""

from __future__ import annotations

import contextlib
import gzip
import math
import random
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlprobe.errors import EmptyRunError, InputError, RlprobeError
from rlprobe.importers import open_runs
from rlprobe.importers.importer import Reading
from rlprobe.importers.source import Source
from rlprobe.importers.tensorboard import crc32c
from rlprobe.importers.tensorboard.event_files import TensorBoard
from rlprobe.store.run import Run
from tests.importers import encoders as enc

NAME = "events.out.tfevents.1700000000.host.1.0"


def only(path: Path) -> Run:
    (run,) = open_runs(path)
    return run


def points(run: Run, name: str) -> list[tuple[int, float]]:
    series = run.steps.series(name)
    return [] if series is None else list(zip(series.steps.tolist(), series.values, strict=True))


def rows(reading: Reading) -> dict[str, list[float | None]]:
    return {
        key: [value if ok else None for value, ok in zip(values.tolist(), valid, strict=True)]
        for key, (values, valid) in reading.rows.columns().items()
    }


def folder_rows(folder: Path) -> tuple[list[int], dict[str, list[float | None]]]:
    (reading,) = TensorBoard().read_folder(folder)
    return reading.rows.steps().tolist(), rows(reading)


def test_the_checksum_is_the_published_one() -> None:
    data = np.frombuffer(b"123456789" + bytes(64), np.uint8)
    starts = np.array([0, 0, 3], dtype=np.int64)
    lengths = np.array([9, 0, 2], dtype=np.int64)
    expected = [int.from_bytes(enc.masked(part), "little") for part in (b"123456789", b"", b"45")]
    assert crc32c.masked(data, starts, lengths).tolist() == expected
    assert enc.crc32c(b"123456789") == 0xE3069283, "RFC 3720"


def test_scalars_keep_their_values_and_nan_is_a_value(tmp_path: Path) -> None:
    values = [0.1, math.nan, math.inf, -math.inf, 0.0]
    events = [enc.event(step * 10, enc.plain("train/loss", v)) for step, v in enumerate(values)]
    run = only(enc.event_file(tmp_path / NAME, *events))
    assert run.info.source == "tensorboard"
    found = points(run, "loss")
    assert [step for step, _ in found] == [0, 10, 20, 30, 40], "step 0 is not written, but meant"
    assert found[0][1] == struct.unpack("<f", struct.pack("<f", 0.1))[0]
    assert math.isnan(found[1][1])
    assert [value for _, value in found[2:]] == [math.inf, -math.inf, 0.0]


def test_no_point_is_sampled_away(tmp_path: Path) -> None:
    path = tmp_path / NAME
    record = [enc.tfrecord(enc.event(s, enc.plain("loss", float(s)))) for s in range(12_000)]
    path.write_bytes(b"".join(record))
    assert points(only(path), "loss") == [(s, float(s)) for s in range(12_000)]


BF16 = struct.unpack("<H", struct.pack("<f", 1.5)[2:])[0]
HALF = int(np.array(0.5, np.float16).view(np.uint16))
TENSORS = {
    "float": (1, enc.float_field(5, 1.5), 1.5),
    "packed float": (1, enc.bytes_field(5, struct.pack("<f", 1.5)), 1.5),
    "float content": (1, enc.bytes_field(4, struct.pack("<f", math.inf)), math.inf),
    "double": (2, enc.double_field(6, 0.1), 0.1),
    "double content": (2, enc.bytes_field(4, struct.pack("<d", 0.1)), 0.1),
    "int32": (3, enc.number_field(7, -7), -7.0),
    "int32 packed": (3, enc.bytes_field(7, enc.varint(300)), 300.0),
    "int64": (9, enc.number_field(10, -(2**40)), -(2.0**40)),
    "int64 content": (9, enc.bytes_field(4, struct.pack("<q", -5)), -5.0),
    "uint64": (23, enc.number_field(17, 2**63), 2.0**63),
    "bool": (10, enc.number_field(11, 1), 1.0),
    "half": (19, enc.number_field(13, HALF), 0.5),
    "half content": (19, enc.bytes_field(4, struct.pack("<H", HALF)), 0.5),
    "bfloat16": (14, enc.number_field(13, BF16), 1.5),
    "bfloat16 content": (14, enc.bytes_field(4, struct.pack("<H", BF16)), 1.5),
}


@pytest.mark.parametrize("kind", sorted(TENSORS))
def test_scalars_stored_as_tensors(kind: str, tmp_path: Path) -> None:
    dtype, content, expected = TENSORS[kind]
    events = [enc.event(s, enc.tensor("loss", dtype, content)) for s in (1, 2)]
    assert points(only(enc.event_file(tmp_path / NAME, *events)), "loss") == [
        (1, expected),
        (2, expected),
    ]


def test_a_signalling_nan_is_a_nan(tmp_path: Path) -> None:
    quiet = enc.plain("loss", 1.0)
    events = [enc.event(1, quiet[:-4] + struct.pack("<I", 0x7F800001)), enc.event(2, quiet)]
    found = points(only(enc.event_file(tmp_path / NAME, *events)), "loss")
    assert math.isnan(found[0][1])
    assert found[1] == (2, 1.0)


def test_text_histograms_and_broken_values_are_no_scalars(tmp_path: Path) -> None:
    text = enc.tensor("text", 7, enc.bytes_field(8, "hello"), shape=[1])
    spread = enc.tensor("histogram", 2, enc.bytes_field(4, bytes(48)), shape=[2, 3])
    histogram = enc.bytes_field(1, "old histogram") + enc.bytes_field(5, bytes(20))
    empty = enc.tensor("empty", 1, enc.bytes_field(4, b""), shape=[0])
    events = [enc.event(1, value) for value in (text, spread, histogram, empty)]
    path = enc.event_file(tmp_path / NAME, *events, enc.event(1, enc.plain("loss", 1.0)))
    run = only(path)
    assert run.steps.names == ("loss",)
    assert run.problems == ()


def test_several_values_in_one_event_and_fields_in_another_order(tmp_path: Path) -> None:
    several = enc.event(3, enc.plain("loss", 1.0), enc.plain("kl", 2.0))
    summary = enc.bytes_field(1, enc.float_field(2, 4.0) + enc.bytes_field(1, "loss"))
    backwards = enc.bytes_field(5, summary) + enc.number_field(2, 4) + enc.double_field(1, 1e9)
    run = only(enc.event_file(tmp_path / NAME, several, backwards))
    assert points(run, "loss") == [(3, 1.0), (4, 4.0)]
    assert points(run, "kl_mean") == [(3, 2.0)]


def test_metrics_with_steps_of_two_kinds_are_no_restart(tmp_path: Path) -> None:
    events = []
    for rollout in range(1, 5):
        events.append(enc.event(rollout, enc.plain("rollout/raw", float(rollout))))
        events += [enc.event(4 * rollout + k, enc.plain("train/pg", float(k))) for k in range(4)]
    run = only(enc.event_file(tmp_path / NAME, *events))
    assert len(run.info.attempts) == 1
    assert len(points(run, "rollout/raw")) == 4
    assert len(points(run, "train/pg")) == 16


def launch(steps: range, value: float, wall: float) -> list[bytes]:
    return [
        enc.event(s, enc.plain(tag, value), wall=wall + s) for s in steps for tag in ("loss", "kl")
    ]


def test_files_of_one_directory_are_launches_of_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "tb"
    enc.event_file(folder / "events.out.tfevents.2", *launch(range(3, 7), 2.0, 2000.0))
    enc.event_file(folder / "events.out.tfevents.1", *launch(range(1, 6), 1.0, 1000.0))
    run = only(folder)
    assert [(a.first_step, a.last_step) for a in run.info.attempts] == [(1, 5), (3, 6)]
    assert len(run.steps) == 5 + 4, "nothing of the first launch is purged"
    assert points(run, "loss")[-1] == (6, 2.0)


def test_a_launch_that_goes_on_without_a_gap_is_no_attempt_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "tb"
    enc.event_file(folder / "events.out.tfevents.1", *launch(range(1, 4), 1.0, 1000.0))
    enc.event_file(folder / "events.out.tfevents.2", *launch(range(4, 7), 1.0, 2000.0))
    assert len(only(folder).info.attempts) == 1


def test_a_launch_that_repeats_the_last_step_is_another_attempt(tmp_path: Path) -> None:
    folder = tmp_path / "tb"
    enc.event_file(folder / "events.out.tfevents.1", *launch(range(1, 4), 1.0, 1000.0))
    enc.event_file(folder / "events.out.tfevents.2", *launch(range(3, 7), 2.0, 2000.0))
    steps, columns = folder_rows(folder)
    assert steps == [1, 2, 3, 3, 4, 5, 6]
    assert columns["loss"] == [1.0] * 3 + [2.0] * 4


def test_writers_in_sub_directories_add_metrics(tmp_path: Path) -> None:
    folder = tmp_path / "tb"
    enc.event_file(folder / NAME, enc.event(1, enc.plain("kl", 0.5)))
    for part in ("train", "val"):
        value = enc.plain("a/loss", 1.0 if part == "train" else 2.0)
        enc.event_file(folder / f"a_loss_{part}" / NAME, enc.event(1, value))
    enc.event_file(folder / "a" / "loss" / "test" / NAME, enc.event(1, enc.plain("a/loss", 3.0)))
    enc.event_file(folder / "other" / NAME, enc.event(1, enc.plain("a/loss", 4.0)))
    steps, columns = folder_rows(folder)
    assert steps == [1]
    parts = {"a/loss/train": [1.0], "a/loss/val": [2.0], "a/loss/test": [3.0]}
    assert columns == {"kl": [0.5], **parts, "other/a/loss": [4.0]}
    assert len(open_runs(folder)) == 1


def test_a_directory_of_directories_holds_several_runs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        enc.event_file(tmp_path / "runs" / name / NAME, enc.event(1, enc.plain("kl", 0.5)))
    assert len(open_runs(tmp_path / "runs")) == 2


def test_a_second_axis_of_the_same_metric_is_left_out(tmp_path: Path) -> None:
    events = [
        enc.event(1, enc.plain("lm loss", 1.0)),
        enc.event(1024, enc.plain("lm loss vs samples", 1.0)),
    ]
    run = only(enc.event_file(tmp_path / NAME, *events))
    assert run.steps.step.tolist() == [1]
    assert any("another axis" in note for note in run.info.notes)


def test_steps_in_no_order_are_one_launch(tmp_path: Path) -> None:
    order = list(range(2000))
    random.Random(0).shuffle(order)
    events = [enc.event(step, enc.plain("loss", float(step))) for step in order]
    (reading,) = TensorBoard().read(Source(enc.event_file(tmp_path / NAME, *events)))
    assert reading.rows.steps().tolist() == list(range(2000))


EVENTS = [enc.event(s, enc.plain("loss", float(s))) for s in range(1, 6)]


POINTS = st.lists(
    st.tuples(st.integers(0, 2**62), st.sampled_from(["a", "b/c", "é" * 40]), st.floats(width=32)),
    min_size=1,
    max_size=30,
)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(logged=POINTS)
def test_what_was_written_is_read(tmp_path: Path, logged: list[tuple[int, str, float]]) -> None:
    logged.sort(key=lambda point: point[0])
    events = [enc.event(step, enc.plain(tag, value)) for step, tag, value in logged]
    (reading,) = TensorBoard().read(Source(enc.event_file(tmp_path / NAME, *events)))
    steps, columns = reading.rows.steps().tolist(), rows(reading)
    assert steps == sorted({step for step, _, _ in logged})
    expected = {(step, tag): value for step, tag, value in logged}
    for tag, values in columns.items():
        for step, value in zip(steps, values, strict=True):
            wanted = expected.get((step, tag))
            assert repr(value) == repr(wanted)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(parts=st.lists(st.binary(max_size=60), max_size=5), framed=st.booleans())
def test_records_of_any_bytes(tmp_path: Path, parts: list[bytes], framed: bool) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"".join(enc.tfrecord(part) if framed else part for part in parts))
    with contextlib.suppress(RlprobeError):
        TensorBoard().read(Source(path))


def test_a_torn_tail_costs_the_last_record(tmp_path: Path) -> None:
    path = enc.event_file(tmp_path / NAME, *EVENTS)
    path.write_bytes(path.read_bytes()[:-3])
    run = only(path)
    assert [step for step, _ in points(run, "loss")] == [1, 2, 3, 4]
    assert "cut off" in run.problems[0].message


def test_a_corrupt_record_is_left_out_and_told(tmp_path: Path) -> None:
    path = enc.event_file(tmp_path / NAME, *EVENTS)
    records = [enc.tfrecord(item) for item in (enc.version(), *EVENTS)]
    place = sum(map(len, records[:3])) + 12 + 5  # in the wall time of the third event
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)
    run = only(path)
    assert [step for step, _ in points(run, "loss")] == [1, 2, 4, 5]
    assert "1 damaged records" in run.problems[0].message


def test_a_corrupt_length_costs_its_record_alone(tmp_path: Path) -> None:
    path = enc.event_file(tmp_path / NAME, *EVENTS)
    records = [enc.tfrecord(item) for item in (enc.version(), *EVENTS)]
    data = bytearray(path.read_bytes())
    data[sum(map(len, records[:3])) + 3] = 0x7F  # a length of 2 GB
    path.write_bytes(data)
    run = only(path)
    assert [step for step, _ in points(run, "loss")] == [1, 2, 4, 5]
    assert "damaged bytes passed over" in run.problems[0].message


def test_a_large_record_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlprobe.importers.tensorboard.tfrecord.BLOCK", 1000)
    monkeypatch.setattr("rlprobe.importers.tensorboard.tfrecord.LARGEST_RECORD", 5000)
    graph = enc.double_field(1, 1e9) + enc.bytes_field(4, bytes(20_000))
    middle = enc.double_field(1, 1e9) + enc.bytes_field(4, bytes(3_000))
    run = only(enc.event_file(tmp_path / NAME, *EVENTS[:2], graph, middle, *EVENTS[2:]))
    assert [step for step, _ in points(run, "loss")] == [1, 2, 3, 4, 5]
    assert run.problems == ()


def test_compressed_and_cut_inside_the_compression(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.gz"
    noise = random.Random(0)
    events = [enc.event(s, enc.plain("loss", noise.random())) for s in range(1, 5001)]
    content = gzip.compress(enc.event_file(tmp_path / "x", *events).read_bytes())
    path.write_bytes(content)
    assert len(points(only(path), "loss")) == 5000
    path.write_bytes(content[:-10])
    assert len(points(only(path), "loss")) > 3000


def test_without_scalars(tmp_path: Path) -> None:
    with pytest.raises(EmptyRunError, match="no scalars"):
        TensorBoard().read(Source(enc.event_file(tmp_path / NAME)))


def test_truncation_at_every_byte(tmp_path: Path) -> None:
    whole = enc.event_file(tmp_path / NAME, *EVENTS).read_bytes()
    for size in range(len(whole)):
        path = tmp_path / NAME
        path.write_bytes(whole[:size])
        try:
            (reading,) = TensorBoard().read(Source(path))
        except InputError:
            assert size < len(enc.tfrecord(enc.version())) + len(enc.tfrecord(EVENTS[0]))
        else:
            found = rows(reading)["loss"]
            assert found == [1.0, 2.0, 3.0, 4.0, 5.0][: len(found)]


def test_any_byte_may_be_wrong(tmp_path: Path) -> None:
    whole = enc.event_file(
        tmp_path / NAME, *EVENTS, enc.event(6, enc.tensor("loss", 2, enc.double_field(6, 6.0)))
    ).read_bytes()
    random_ = random.Random(1)
    begun = time.monotonic()
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= random_.randrange(1, 256)
        path = tmp_path / NAME
        path.write_bytes(data)
        try:
            (reading,) = TensorBoard().read(Source(path))
        except RlprobeError:
            continue
        values = rows(reading)["loss"]
        assert set(values) <= {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, "no damaged value gets through"
        assert len(values) >= 5
    assert time.monotonic() - begun < 30


def test_a_file_full_of_false_lengths_ends_soon(tmp_path: Path) -> None:
    bad = bytearray(enc.tfrecord(EVENTS[0]))
    bad[9] ^= 1
    path = tmp_path / NAME
    path.write_bytes((bytes(bad) + enc.tfrecord(EVENTS[1])) * 5000)
    begun = time.monotonic()
    (reading,) = TensorBoard().read(Source(path))
    assert any("too much damage" in problem.message for problem in reading.problems)
    assert time.monotonic() - begun < 20
