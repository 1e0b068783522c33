"""Recordings made to do harm: every verb answers or refuses with a reason."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.reliability import flips
from rlprobe.cli import main
from rlprobe.exit_codes import COULD_NOT_JUDGE
from rlprobe.scan.engine import scan
from rlprobe.store import limits, manifest
from rlprobe.store.recording import Recording
from tests.store import hostile
from tests.store.hostile_verbs import ANSWERED, VERBS, answer, judged

TRIED = 160
PARTS = 4


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile.good(tmp_path_factory.mktemp("hostile") / "whole")


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.mark.parametrize("part", range(PARTS))
def test_every_verb_answers(whole: Path, tmp_path: Path, part: int) -> None:
    """A share of the cases, spread over all kinds of them; each meets one verb."""
    every = hostile.cases()
    chosen = Random(7).sample(range(len(every)), TRIED)[part::PARTS]
    wrong = [
        said
        for place in chosen
        for said in judged(every[place], whole, tmp_path / "run", [VERBS[place % len(VERBS)]])
    ]
    assert wrong == []


def test_the_cases_are_many_and_of_all_kinds() -> None:
    names = [case.name for case in hostile.cases()]
    assert len(set(names)) == len(names) > 2000


def test_the_good_recording_is_good(run: Path) -> None:
    """A judge that finds fault with nothing would be no judge."""
    assert Recording(run).problems == ()
    assert [answer([*verb[:1], str(run), *verb[2:]])[0] for verb in VERBS[:1]] == [ANSWERED]
    assert answer(["query", str(run), "select chr(27)", "--format", "csv", "--raw"])[0] != ANSWERED


def test_a_flipped_bit_is_named_or_has_no_effect() -> None:
    counts = flips.campaign(200, scan_every=8)
    assert set(counts) <= flips.GOOD
    assert counts[flips.NAMED] > 180


def _changed(directory: Path, place: int) -> None:
    path = sorted(directory.glob("steps/*.parquet"))[0]
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_damaged_shard_makes_no_pass(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _changed(run, 100)
    report = scan(Recording(run))
    assert report.verdict == "not_judged"
    assert report.reason.startswith("data is missing: 1 file of steps")
    assert main(["scan", str(run), "--no-color"]) == COULD_NOT_JUDGE
    said = capsys.readouterr().out
    assert "does not match its checksum" in said
    assert "data is missing" in said


def test_ranks_that_could_not_be_read_are_not_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlprobe import Recorder

    monkeypatch.setenv("RLPROBE_LAUNCH", "one")
    for rank in range(4):
        with Recorder(tmp_path, rank=rank, world_size=4, signals=False) as recorder:
            for step in range(50):
                recorder.step(step, loss=1.0)
                recorder.rank(step, loss=1.0, step_time=1.0)
    (path,) = (tmp_path / "ranks").glob("a0001-r00003-*.parquet")
    assert len(Recording(tmp_path).ranks) == 200
    path.write_bytes(path.read_bytes()[:200])
    report = scan(Recording(tmp_path))
    assert len(Recording(tmp_path).ranks) == 150
    (coverage,) = (item for item in report.coverage if item.detector == "RANK_SILENT")
    assert (coverage.state, "could not be read" in coverage.reason) == ("inconclusive", True)


def test_an_integer_metric_is_read_as_numbers(run: Path) -> None:
    path = next((run / "steps").glob("*.parquet"))
    rows = pq.read_table(path)
    place = rows.schema.get_field_index("loss")
    kinds: tuple[tuple[pa.Array, list[float]], ...] = (
        (pa.array([1, 2, 3], pa.int64()), [1.0, 2.0, 3.0]),
        (pa.array([1, 2, 3], pa.float32()), [1.0, 2.0, 3.0]),
        (pa.array([1.5, 2.5, 1.5]).dictionary_encode(), [1.5, 2.5, 1.5]),
        (pa.array([True, False, True]), [1.0, 0.0, 1.0]),
    )
    for column, numbers in kinds:
        hostile.stored(path, rows.slice(0, 3).set_column(place, "loss", column))
        values, valid = Recording(run).steps.load("loss")
        assert values.tolist() == numbers
        assert valid.all()
    hostile.stored(path, rows.slice(0, 2).set_column(place, "loss", pa.array(["1", "2"])))
    recording = Recording(run)
    assert "loss" not in recording.steps.names
    assert "'loss' (string)" in recording.problems[0].message


def test_rows_without_a_step_are_left_out_and_counted(run: Path) -> None:
    path = next((run / "steps").glob("*.parquet"))
    rows = pq.read_table(path).slice(0, 3)
    hostile.stored(path, rows.set_column(0, "step", pa.array([4, None, 2**63 - 1])))
    recording = Recording(run)
    assert recording.steps.step.tolist() == [4]
    assert recording.steps.load("loss")[0].tolist() == [1.0]
    assert recording.problems[0].message.startswith("2 rows left out")


def test_a_metric_beside_one_with_its_name_and_a_dot(tmp_path: Path) -> None:
    """Parquet reads `loss.value` along with `loss`."""
    from rlprobe import Recorder

    with Recorder(tmp_path, signals=False) as recorder:
        recorder.step(1, **{"loss": 1.0, "loss.value": 2.0})
    frame = Recording(tmp_path).steps
    assert [frame.load(name)[0].tolist() for name in ("loss", "loss.value")] == [[1.0], [2.0]]


def _socket_at(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (os.mkfifo, "a pipe"),
        (Path.mkdir, "a directory"),
        (lambda path: path.symlink_to("/dev/zero"), "out of the run directory"),
        (lambda path: path.symlink_to("/etc/hostname"), "out of the run directory"),
        (lambda path: path.symlink_to("gone"), "a link to nothing"),
    ],
)
@pytest.mark.parametrize("pattern", ["steps/*.parquet", "attempts/0001/r0*.json"])
def test_what_is_no_file_is_not_opened(
    run: Path, pattern: str, make: Callable[[Path], None], word: str
) -> None:
    (path,) = run.glob(pattern)
    path.unlink()
    make(path)
    recording = Recording(run)
    _ = recording.info
    (problem,) = recording.problems
    assert (problem.path, word in problem.message) == (str(path), True)


def test_a_link_within_the_run_directory_is_one_of_its_files(run: Path) -> None:
    (path,) = (run / "steps").glob("*.parquet")
    path.rename(run / "elsewhere")
    path.symlink_to("../elsewhere")
    assert len(Recording(run).steps) == 60
    link = run.with_name("link")
    link.symlink_to(run)
    assert len(Recording(link).steps) == 60


def _steps(one: pa.Table, first: int, count: int) -> pa.Table:
    """The same row, at so many steps."""
    rows = pa.concat_tables([one] * count).combine_chunks()
    steps = pa.array(range(first, first + count), pa.int64())
    return rows.set_column(rows.schema.get_field_index("step"), "step", steps)


def test_a_bomb_is_refused_before_it_is_read(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = next((run / "steps").glob("*.parquet"))
    one = pq.read_table(path).slice(0, 1)
    hostile.stored(path, _steps(one, 0, 1000))
    monkeypatch.setattr(limits, "_FREE_ROWS", 100)
    monkeypatch.setattr(limits, "MOST_ROWS", 500)
    recording = Recording(run)
    assert len(recording.steps) == 0
    assert "1,000 rows in" in recording.problems[0].message
    assert "--allow-large" in recording.problems[0].message
    query = ["query", str(run), "select count(*) from steps", "--format", "csv"]
    counted = []
    for words in (query, [*query, "--allow-large"], query):
        assert main(words) == 0
        counted.append(capsys.readouterr().out.splitlines()[1])
    assert counted == ["0", "1000", "0"]
    monkeypatch.setenv("RLPROBE_ALLOW_LARGE", "1")
    assert len(Recording(run).steps) == 1000


def test_gigabytes_of_text_are_counted_before_they_are_made(run: Path) -> None:
    path = next((run / "samples").glob("*.parquet"))
    one = pq.read_table(path).slice(0, 1)
    rows = pa.concat_tables([one] * 4000)
    text = pa.array(["a" * 100_000] * 4000).dictionary_encode()
    place = rows.schema.get_field_index("completion")
    hostile.stored(path, rows.set_column(place, "completion", text))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    recording = Recording(run)
    assert recording.sample_steps() == ()
    assert "381.9 MiB of text in" in recording.problems[0].message
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_more_shards_than_files_may_be_open(tmp_path: Path) -> None:
    """300 shards of four tables, with 64 descriptors: all are read, none is torn."""
    manifest.prepare(tmp_path)
    manifest.update(tmp_path, {"algorithm": "GRPO"})
    good = hostile.good(tmp_path.with_name("good"))
    for table in ("steps", "ranks", "samples", "events"):
        content = next((good / table).glob("*.parquet")).read_bytes()
        for number in range(300):
            name = f"a0001-r00000-w{number}-00000000-00000000.parquet"
            (tmp_path / table / name).write_bytes(content)
    code = (
        "import sys; from pathlib import Path\n"
        "from rlprobe.store.recording import Recording\n"
        "run = Recording(Path(sys.argv[1]))\n"
        "print(len(run.steps), len(run.ranks), len(run.events), run.sample_steps(), run.problems)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )
    assert done.stdout.split()[:2] == ["60", "60"]  # of the same steps: parts of the same rows
    assert done.stdout.strip().endswith("(5,) ()")


def test_too_few_descriptors_are_no_torn_shard(run: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:

        def refuse(*_: object, **__: object) -> int:
            raise OSError(24, "Too many open files")

        patch.setattr("rlprobe.store.admission.os.open", refuse)
        outcome, said = answer(["scan", str(run)])
    assert outcome == ANSWERED
    assert "may not have more files open" in said
    assert "ulimit -n" in said
    assert "torn" not in said


def test_wide_tables_are_read_in_time_that_grows_with_them(tmp_path: Path) -> None:
    """The number of reads, not seconds: one of a shard, however many columns it has."""
    rows = {"step": np.arange(20), "attempt": np.ones(20, np.int32), "time": np.arange(20)}
    reads: list[int] = []
    for names in (100, 2000):
        run = hostile.good(tmp_path / str(names))
        path = next((run / "steps").glob("*.parquet"))
        metrics = {f"m/{number}": np.full(20, 1.0) for number in range(names)}
        hostile.stored(path, pa.table(rows | metrics))
        with pytest.MonkeyPatch.context() as patch:
            inner = pq.ParquetFile.read
            calls: list[int] = []

            def counted(
                *words: object, inner: object = inner, calls: list[int] = calls, **more: object
            ) -> object:
                calls.append(1)
                return inner(*words, **more)  # type: ignore[operator]

            patch.setattr(pq.ParquetFile, "read", counted)
            report = scan(Recording(run))
            reads.append(len(calls))
        assert len(report.unmapped_metrics) == names
    assert reads[0] == reads[1] < 20


@pytest.mark.parametrize(
    "verb",
    [
        ("scan", "RUN"),
        ("scan", "RUN", "--format", "json"),
        ("scan", "RUN", "--format", "markdown"),
        ("gate", "RUN"),
        ("show", "RUN", "--step", "5"),
        ("ls", "RUN"),
        ("query", "RUN", "select count(*) from steps"),
        ("import", "RUN", "--run", "NEW"),
        ("compact", "RUN"),
    ],
)
def test_every_verb_names_what_it_left_out(run: Path, verb: tuple[str, ...]) -> None:
    path = sorted((run / "steps").glob("*.parquet"))[0]
    shutil.copy(path, path.with_name("a0001-r00000-zz-00000000-00000000.parquet"))
    _changed(run, 100)
    new = str(run.with_name("new"))
    outcome, said = answer([{"RUN": str(run), "NEW": new}.get(word, word) for word in verb])
    assert outcome == ANSWERED
    assert "does not match its checksum" in " ".join(said.split())


def test_limits_are_those_of_a_table_not_of_a_shard(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bomb in many parts is one."""
    path = next((run / "steps").glob("*.parquet"))
    one = pq.read_table(path).slice(0, 1)
    for number in range(5):
        part = path.with_name(f"a0001-r00000-zz{number}-00000000-00000000.parquet")
        hostile.stored(part, _steps(one, 100 * (number + 1), 50))
    monkeypatch.setattr(limits, "_FREE_ROWS", 200)
    monkeypatch.setattr(limits, "MOST_ROWS", 200)
    recording = Recording(run)
    assert len(recording.steps) == 60 + 2 * 50
    assert [problem.message[:18] for problem in recording.problems] == ["left out: 210 rows"] * 3


def test_large_tables_of_many_shards_are_read_column_by_column(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlprobe.store import recording as module

    whole = Recording(run).steps.load("loss")[0].tolist()
    for names in ({"_MOST_OPEN": 0, "_MOST_CELLS_AT_ONCE": 0}, {"_MOST_OPEN": 0}, {"_SHORT": 0}):
        with monkeypatch.context() as patch:
            for name, value in names.items():
                patch.setattr(module, name, value)
            recording = Recording(run)
            assert recording.steps.load("loss")[0].tolist() == whole
            assert recording.problems == ()
    monkeypatch.setattr(module, "_MOST_OPEN", 0)
    monkeypatch.setattr(module, "_MOST_CELLS_AT_ONCE", 0)
    recording = Recording(run)
    assert len(recording.steps) == 60
    next((run / "steps").glob("*.parquet")).unlink()
    assert not recording.steps.load("loss")[1].any()
    assert "merged away while it was read" in recording.problems[0].message
