"""Two jobs and one directory: the second is recorded beside the first, and says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlprobe import Recorder
from rlprobe.recorder import claim
from rlprobe.store import manifest, occupancy
from rlprobe.store.recording import Recording

Screen = Callable[..., str]
JOB = """
import sys, time
from rlprobe import Recorder
recorder = Recorder(sys.argv[1])
recorder.step(1, loss=float(sys.argv[2]))
recorder.flush()
print(recorder.run_dir, flush=True)
sys.stdin.readline()
recorder.step(2, loss=float(sys.argv[2]))
recorder.close()
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(
        run_dir: Path, loss: float = 1.0, code: str = JOB, **env: str
    ) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, str(run_dir), str(loss)]
        pipe = subprocess.PIPE
        job = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **env}
        )
        started.append(job)
        return job

    yield begin
    for job in started:
        job.kill()
        job.communicate()


def place(job: subprocess.Popen[str]) -> Path:
    assert job.stdout is not None
    return Path(job.stdout.readline().strip())


def end(job: subprocess.Popen[str]) -> str:
    """End a job in order; what it said on standard error."""
    return job.communicate("\n", timeout=60)[1]


def test_a_second_job_is_recorded_beside_the_first(
    tmp_path: Path, start: Start, screen: Screen
) -> None:
    first = start(tmp_path / "run", 1.0)
    assert place(first) == tmp_path / "run"
    second = start(tmp_path / "run", 2.0)
    assert place(second) == tmp_path / "run-2"
    third = start(tmp_path / "run", 3.0)
    assert place(third) == tmp_path / "run-3"
    word = (
        f"process {first.pid} of another run is recording into '{tmp_path}/run'; this run is "
        f"recorded in '{tmp_path}/run-2'"
    )
    said = end(second)
    assert said.count(word) == 1, said
    assert "another run" not in end(first)
    assert "run-3" in end(third)
    for name, loss in {"run": 1.0, "run-2": 2.0, "run-3": 3.0}.items():
        recording = Recording(tmp_path / name)
        assert recording.steps.load("loss")[0].tolist() == [loss, loss]
        assert [attempt.ended for attempt in recording.info.attempts] == ["completed"]
    assert word.replace("\n", " ") in " ".join(screen("scan", tmp_path / "run-2").split())


def test_jobs_that_start_at_once_never_share(tmp_path: Path, start: Start) -> None:
    jobs = [start(tmp_path / "run", float(number)) for number in range(4)]
    places = [place(job) for job in jobs]
    assert len(set(places)) == 4
    for number, job in enumerate(jobs):
        end(job)
        recording = Recording(places[number])
        assert recording.steps.load("loss")[0].tolist() == [number, number]
        assert len(recording.info.attempts) == 1


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_that_died_is_continued(tmp_path: Path, start: Start, by: signal.Signals) -> None:
    first = start(tmp_path / "run")
    place(first)
    first.send_signal(by)  # it stays a zombie: nobody has waited for it
    second = start(tmp_path / "run", 2.0)
    assert place(second) == tmp_path / "run"
    assert "another run" not in end(second)
    assert len(Recording(tmp_path / "run").info.attempts) == 2


def test_a_job_that_is_about_to_end_is_waited_for(tmp_path: Path, start: Start) -> None:
    first = start(tmp_path / "run")
    place(first)
    second = start(tmp_path / "run", 2.0)
    time.sleep(0.5)
    end(first)
    assert place(second) == tmp_path / "run"


def test_ranks_of_a_launch_share_and_stay_together(tmp_path: Path, start: Start) -> None:
    def launch(port: int, number: int) -> list[subprocess.Popen[str]]:
        rendezvous = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
        ranks = range(number)
        sizes = {"WORLD_SIZE": str(number)}
        return [start(tmp_path / "run", **rendezvous, **sizes, RANK=str(rank)) for rank in ranks]

    first = launch(1, 2)
    assert [place(job) for job in first] == [tmp_path / "run"] * 2
    second = launch(2, 3)  # with a rank that the first has not
    assert [place(job) for job in second] == [tmp_path / "run-2"] * 3
    for job in (*first, *second):
        end(job)
    assert [Recording(tmp_path / name).info.world_size for name in ("run", "run-2")] == [2, 3]
    assert len(Recording(tmp_path / "run-2").info.attempts) == 1


def test_a_directory_that_another_rank_is_about_to_open(tmp_path: Path) -> None:
    manifest.prepare(tmp_path / "run-2")
    assert occupancy.is_of(tmp_path / "run-2", "ours")
    (tmp_path / "run-2" / "notes.txt").touch()
    assert not occupancy.is_of(tmp_path / "run-2", "ours")


def test_a_restart_by_its_scheduler_need_not_wait_for_the_last_one(
    tmp_path: Path, start: Start
) -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    first = start(tmp_path / "run", **job)
    place(first)
    again = start(tmp_path / "run", **job, SLURM_RESTART_COUNT="1")
    assert place(again) == tmp_path / "run"


def test_ranks_that_only_the_script_counts(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ranks = [Recorder(tmp_path / "run", rank=rank, world_size=2) for rank in (0, 1)]
    for rank in ranks:
        rank.close()
    assert {rank.run_dir for rank in ranks} == {tmp_path / "run"}
    assert [attempt.world_size for attempt in Recording(tmp_path / "run").info.attempts] == [2]


def test_a_process_and_its_children_are_one_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    monkeypatch.setattr(claim, "PATIENCE", 0.1)
    own = Recorder(tmp_path / "run")
    again = Recorder(tmp_path / "run")  # a cell of a notebook that is run once more
    child = start(tmp_path / "run")
    assert again.run_dir == place(child) == own.run_dir
    end(child)
    own.close()
    again.close()


def test_another_host_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("socket.gethostname", lambda: "elsewhere")
        first = Recorder(tmp_path / "run")
    begun = time.monotonic()
    second = Recorder(tmp_path / "run")
    assert second.run_dir == first.run_dir
    assert time.monotonic() - begun < claim.PATIENCE
    first.close()
    second.close()


def test_record_into_a_live_directory(tmp_path: Path, start: Start, screen: Screen) -> None:
    first = start(tmp_path / "run")
    place(first)
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nfrom rlprobe import Recorder\n"
        f"with Recorder({str(tmp_path / 'run')!r}) as recorder:\n    recorder.step(1, loss=9.0)\n"
    )
    command = [sys.executable, "-m", "rlprobe", "record", "--run", str(tmp_path / "run")]
    done = subprocess.run(
        [*command, sys.executable, str(script)], capture_output=True, text=True, check=True
    )
    said = done.stderr
    assert (
        f"rlprobe: process {first.pid} of another run is recording into '{tmp_path}/run'; this "
        f"run is recorded in '{tmp_path}/run-2'\n" in said
    )
    assert f"recorded in {tmp_path}/run-2" in said.splitlines()[-1]
    end(first)
    mine, other = Recording(tmp_path / "run-2"), Recording(tmp_path / "run")
    assert mine.steps.load("loss")[0].tolist() == [9.0]
    assert other.steps.load("loss")[0].tolist() == [1.0, 1.0]
    assert len(mine.info.attempts) == len(other.info.attempts) == 1
    assert "of another run is recording" in screen("scan", tmp_path / "run-2")
