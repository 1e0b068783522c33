"""Temporary files of dead writers go, those of living ones stay."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlprobe import Recorder
from rlprobe.store import files, leftovers, living, modes
from rlprobe.store.compaction import compact
from rlprobe.store.recording import Recording


def dead() -> tuple[int, int]:
    """Process id and birth of a process that has been."""
    code = "import os; from rlprobe.store import living; print(os.getpid(), "
    code += "int(living.process_birth(os.getpid())))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pid, born = done.stdout.split()
    return int(pid), int(born)


def owned(name: str, pid: int, born: int, place: str | None = None) -> str:
    return f".{name}.{place or living.place()}.{pid}.{born}.0123abcd.tmp"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with Recorder(tmp_path / "run", signals=False) as recorder:
        recorder.step(1, loss=1.0)
    return tmp_path / "run"


def put(path: Path, *, days: float = 0.0) -> Path:
    path.write_bytes(b"PAR1")
    then = time.time() - days * 86_400
    os.utime(path, (then, then))
    return path


def test_those_of_the_dead_go_and_the_others_stay(run: Path) -> None:
    own = int(living.process_birth(os.getpid()))
    folders = [run, run / "steps", run / "attempts", run / "attempts" / "0001"]
    gone = [put(folder / owned("x", *dead())) for folder in folders]
    gone.append(put(run / "steps" / owned("x", os.getpid(), own + 1)))  # its number was used again
    gone.append(put(run / "steps" / owned("x", 1, 1, "00000000"), days=2))
    gone.append(put(run / "steps" / ".x.parquet.0123abcd.tmp", days=2))
    stay = [
        put(run / "steps" / owned("x", os.getpid(), own)),
        put(run / "steps" / owned("y", 1, 1, "00000000")),  # elsewhere: nobody can be asked
        put(run / "steps" / ".y.parquet.0123abcd.tmp"),
        put(run / "steps" / ".mine.tmp", days=9),
        put(run / "steps" / "x.0123abcd.tmp", days=9),
    ]
    assert leftovers.clear(run) == len(gone)
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in stay)


def test_the_name_tells_the_writer(tmp_path: Path) -> None:
    path = files.temporary_beside(tmp_path / "run.json")
    own = int(living.process_birth(os.getpid()))
    assert path.name.startswith(f".run.json.{living.place()}.{os.getpid()}.{own}.")
    assert leftovers._OWNED.fullmatch(path.name)


def test_links_are_neither_followed_nor_deleted(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    victim = put(outside / owned("x", *dead()))
    (run / "ranks").rmdir()
    (run / "ranks").symlink_to(outside)
    (run / "steps" / owned("y", *dead())).symlink_to(victim)
    assert leftovers.clear(run) == 0
    assert victim.exists()


def test_the_next_writer_and_compact_clear(run: Path) -> None:
    left = put(run / "steps" / owned("x", *dead()))
    Recorder(run, signals=False).close()
    assert not left.exists()
    put(left)
    assert compact(run).leftovers == 1
    assert not left.exists()


def test_a_writer_killed_in_the_middle_of_a_write_leaves_nothing_behind(run: Path) -> None:
    code = """
import os, sys
from rlprobe import Recorder
recorder = Recorder(sys.argv[1], flush_seconds=60)
recorder.step(1, loss=1.0)
os.fsync = lambda descriptor: os.kill(os.getpid(), 9)
recorder.flush()
"""
    done = subprocess.run([sys.executable, "-c", code, str(run)], check=False)
    assert done.returncode == -9
    assert len(list(run.rglob(".*.tmp"))) == 1
    Recorder(run, signals=False).close()
    assert not list(run.rglob(".*.tmp"))
    assert Recording(run).problems == ()


def test_a_full_disk_leaves_no_attempt_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        path.write_bytes(text[:3].encode())
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(modes, "write_text", full)
        with pytest.raises(OSError, match="No space"):
            files.create_exclusive(tmp_path / "0001.json", "{}        ")
    assert list(tmp_path.iterdir()) == []


def test_a_file_can_be_overwritten_in_its_own_blocks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x" * 20)
    assert files.overwrite(path, '{"a": 1}') is True
    assert path.read_text() == '{"a": 1}'.ljust(20)
    assert files.overwrite(path, "y" * 21) is False
    assert path.read_text() == '{"a": 1}'.ljust(20)
