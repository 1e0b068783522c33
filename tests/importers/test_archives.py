"""Zip and tar: read as the directory that they hold, and harmless whatever they hold."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

import rlprobe
from rlprobe.errors import InputError
from rlprobe.importers import archives, compression, open_runs
from tests.importers.reading import log, only, points
from tests.importers.test_containers import COMPRESSED

ROWS = "".join(json.dumps({"step": step, "loss": 1 / step}) + "\n" for step in range(1, 6))
Files = Mapping[str, str | bytes]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


def left_behind(tmp_path: Path) -> list[str]:
    return os.listdir(tmp_path / "temporary")  # noqa: PTH208


def zipped(files: Files) -> bytes:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return into.getvalue()


def tarred(files: Files, *others: tarfile.TarInfo) -> bytes:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w") as archive:
        for name, text in files.items():
            data = text.encode() if isinstance(text, str) else text
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        for entry in others:
            archive.addfile(entry)
    return into.getvalue()


PACKED: dict[str, Callable[[Files], bytes]] = {
    "runs.zip": zipped,
    **{
        f"runs.tar{suffix}": lambda files, pack=pack: pack(tarred(files))  # type: ignore[misc]
        for suffix, pack in COMPRESSED.items()
    },
}


@pytest.mark.parametrize("name", PACKED)
def test_an_archive_is_read_as_its_directory(name: str, tmp_path: Path) -> None:
    files = {"runs/a/m.jsonl": ROWS, "runs/b/t.log.1": ROWS, "runs/b/t.log": "", "runs/readme": "x"}
    path = log(tmp_path, name, PACKED[name](files))
    runs = open_runs(path)
    assert [run.info.id for run in runs] == ["runs/a/m.jsonl", "runs/b/t.log.1"]
    assert [run.info.path for run in runs] == [f"{path}/{key}" for key in list(files)[:2]]
    assert points(runs[1], "loss")[4] == (5, 0.2)
    assert runs[0].info.notes == ("not read: runs/readme: no metrics in it",)
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("name", ["runs.zip", "runs.tar", "runs.tar.gz", "runs.tar.zst"])
def test_an_archive_on_standard_input(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = PACKED[name]({"m.jsonl": ROWS})
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    (run,) = open_runs("-")
    assert (run.info.path, len(run.steps)) == ("-/m.jsonl", 5)


def test_a_name_without_a_suffix_will_do(tmp_path: Path) -> None:
    assert len(only(log(tmp_path, "download", PACKED["runs.tar.xz"]({"m.jsonl": ROWS}))).steps) == 5


def test_a_recording_in_an_archive_can_be_asked_later(tmp_path: Path) -> None:
    with rlprobe.Recorder(tmp_path / "run") as recorder:
        for step in range(5):
            recorder.step(step, loss=0.5 * step)
    files = {
        f"run/{path.relative_to(tmp_path / 'run')}": path.read_bytes()
        for path in (tmp_path / "run").rglob("*")
        if path.is_file()
    }
    path = log(tmp_path, "run.tar", tarred(files))
    run = only(path)
    assert run.info.path == f"{path}/run"
    assert points(run, "loss")[-1] == (4, 2.0)


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_no_member_leads_out_of_its_place(pack: Callable[[Files], bytes], tmp_path: Path) -> None:
    names = ["../out.jsonl", "a/../../out.jsonl", "..\\out.jsonl", "x" * 300 + ".jsonl"]
    files = {**dict.fromkeys(names, ROWS), "/tmp/absolute.jsonl": ROWS}
    run = only(log(tmp_path, "a", pack(files)))
    assert run.info.id == "tmp/absolute.jsonl"
    assert len(run.problems) == len(names)
    assert "'../out.jsonl' left out: its name leads elsewhere" in run.problems[0].message
    assert not list(tmp_path.rglob("out.jsonl"))
    assert left_behind(tmp_path) == []


def test_names_in_another_encoding_are_kept_readable(tmp_path: Path) -> None:
    run = only(log(tmp_path, "a.tar", tarred({"lauf-\udcfc.jsonl": ROWS})))
    assert run.info.id == "lauf-\ufffd.jsonl"
    assert not run.problems


def test_links_and_devices_are_left_out(tmp_path: Path) -> None:
    others = []
    for number, kind in enumerate(
        (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)
    ):
        entry = tarfile.TarInfo(f"odd-{number}.jsonl")
        entry.type, entry.linkname = kind, "/etc/passwd"
        others.append(entry)
    run = only(log(tmp_path, "a.tar", tarred({"m.jsonl": ROWS}, *others)))
    assert [problem.message for problem in run.problems] == [
        f"'odd-{number}.jsonl' left out: a link, a device or a file with holes"
        for number in range(4)
    ]


def test_a_link_in_a_zip_is_left_out(tmp_path: Path) -> None:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        archive.writestr("m.jsonl", ROWS)
        entry = zipfile.ZipInfo("link.jsonl")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    run = only(log(tmp_path, "a.zip", into.getvalue()))
    assert [problem.message for problem in run.problems] == [
        "'link.jsonl' left out: a link or a device"
    ]


@pytest.mark.parametrize("name", ["runs.zip", "runs.tar.gz", "runs.tar.bz2", "runs.tar.xz"])
def test_a_bomb_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "HARMLESS_BYTES", 1024 * 1024)
    path = log(tmp_path, name, PACKED[name]({"m.jsonl": b"\n" * 60_000_000}))
    with pytest.raises(InputError, match="it swells to more than 400 times its size"):
        open_runs(path)
    assert left_behind(tmp_path) == []


def test_what_takes_too_much_room_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", 1024 * 1024)
    path = log(tmp_path, "a.tar", tarred({"m.jsonl": b"\n" * 2_000_000}))
    with pytest.raises(InputError, match="it takes more than 1 MB"):
        open_runs(path)


def test_of_very_many_members_the_first_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MOST_MEMBERS", 3)
    files = {f"{number}.jsonl": ROWS for number in range(9)}
    runs = open_runs(log(tmp_path, "a.zip", zipped(files)))
    assert len(runs) == 3
    assert runs[0].problems[0].message == "all after the first 3 members left out"


def test_a_header_that_announces_a_huge_name_is_refused(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("././@LongLink")
    entry.type, entry.size = tarfile.GNUTYPE_LONGNAME, 4 * 1024**3
    data = tarred({"m.jsonl": ROWS})
    content = data[: len(data) - len(data) % 512].rstrip(b"\0")
    content += bytes(-len(content) % 512) + entry.tobuf() + b"x" * 2048
    run = only(log(tmp_path, "a.tar", content))
    assert len(run.steps) == 5
    assert "could not be unpacked" in run.problems[0].message


def test_weights_are_not_unpacked(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"model.safetensors": os.urandom(2_000_000), "m.jsonl": ROWS}
    run = only(log(tmp_path, "a.zip", zipped(files)))
    assert run.info.notes == ("not unpacked: 1 .safetensors",)


def test_a_cut_archive_is_read_up_to_the_cut(tmp_path: Path) -> None:
    data = tarred({"a.jsonl": ROWS, "b.jsonl": ROWS * 1000})
    runs = open_runs(log(tmp_path, "a.tar", data[:60_000]))
    assert [run.info.id for run in runs] == ["a.jsonl", "b.jsonl"]
    assert any("the rest could not be unpacked" in problem.message for problem in runs[0].problems)
    with pytest.raises(InputError, match="Couldn't unpack"):
        open_runs(log(tmp_path, "b.zip", zipped({"a.jsonl": ROWS})[:60]))


def test_an_archive_without_a_log_says_what_it_holds(tmp_path: Path) -> None:
    path = log(tmp_path, "a.zip", zipped({"notes.txt": "milk", "inner.zip": zipped({"m": ROWS})}))
    with pytest.raises(InputError) as caught:
        open_runs(path)
    assert str(caught.value) == (
        f"Couldn't read '{path}': no recording (run.json) and no log in it: notes.txt: no metrics "
        "in it; inner.zip: packed; give it by itself"
    )
