"""A recording is for its owner's eyes, or for those of a group that was named."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlprobe.cli import main
from rlprobe.errors import InputError
from rlprobe.recorder.recorder import Recorder
from rlprobe.store import manifest, modes


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0o002)
    yield
    os.umask(before)


def record(run_dir: Path) -> None:
    with Recorder(run_dir, signals=False) as recorder:
        for step in range(3):
            recorder.step(step, loss=1.0)
            recorder.flush()
        recorder.samples(1, prompts=["p"], completions=["private"], rewards=[1.0])
        recorder.checkpoint(2, "x")


def all_modes(run_dir: Path) -> tuple[set[int], set[int]]:
    """Of the folders, and of the files."""
    paths = [run_dir, *run_dir.rglob("*")]
    modes_of = {path: stat.S_IMODE(path.stat().st_mode) for path in paths}
    folders = {mode for path, mode in modes_of.items() if path.is_dir()}
    return folders, {mode for path, mode in modes_of.items() if path.is_file()}


def test_a_recording_is_its_owners_alone(tmp_path: Path) -> None:
    record(tmp_path / "runs" / "run")
    assert all_modes(tmp_path / "runs" / "run") == ({0o700}, {0o600})
    assert stat.S_IMODE((tmp_path / "runs").stat().st_mode) == 0o775  # the user's own


def test_so_it_is_after_a_restart_and_when_it_is_compacted(tmp_path: Path) -> None:
    for _ in range(2):
        record(tmp_path / "run")
    assert main(["compact", str(tmp_path / "run")]) == 0
    assert all_modes(tmp_path / "run") == ({0o700}, {0o600})


def test_so_is_what_is_imported(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"step {step} | loss 0.5\n" for step in range(1, 20)))
    assert main(["import", "--run", str(tmp_path / "run"), str(log)]) == 0
    assert all_modes(tmp_path / "run") == ({0o700}, {0o600})


def test_a_directory_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir(mode=0o775)
    record(run_dir)
    folders, files = all_modes(run_dir)
    assert stat.S_IMODE(run_dir.stat().st_mode) == 0o775
    assert folders == {0o775, 0o700}
    assert files == {0o600}


@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_group_may_read(tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    group = str(os.getgid())
    if by == "environment":
        monkeypatch.setenv("RLPROBE_GROUP", group)
    else:
        manifest.prepare(tmp_path / "run", group)
    record(tmp_path / "run")
    assert all_modes(tmp_path / "run") == ({0o2750}, {0o640})
    assert {path.stat().st_gid for path in (tmp_path / "run").rglob("*")} == {os.getgid()}


def test_a_group_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'no-such-group'.*no such group"):
        manifest.prepare(tmp_path / "run", "no-such-group")
    assert not modes.is_group("no-such-group")


def test_record_refuses_a_group_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["record", "--group", "no-such-group", "--run", str(tmp_path / "run")]
    assert main([*words, "--", "touch", str(tmp_path / "ran")]) == 2
    assert "no such group" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_record_makes_is_its_owners_alone(tmp_path: Path) -> None:
    assert main(["record", "--run", str(tmp_path / "run"), "--", "true"]) == 0
    assert all_modes(tmp_path / "run") == ({0o700}, {0o600})
