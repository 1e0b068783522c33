"""MLflow's file store: `<store>/<experiment>/<run>/{meta.yaml,metrics,params}`.

A metric is a text file of lines `timestamp value step`; newer versions append the data set. A `/`
in a key makes a sub-directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rlprobe.errors import InputError
from rlprobe.importers.numbers import number
from rlprobe.importers.source import Source

_MOST_FILES = 100_000
_LARGEST_TEXT = 65_536
_STATUS = {"3": "FINISHED", "4": "FAILED", "5": "KILLED"}


@dataclass
class FileRun:
    """One run of a file store. `bad` counts lines that could not be read."""

    path: Path
    id: str
    name: str
    status: str
    ended: float
    settings: dict[str, str] = field(default_factory=dict)
    bad: int = 0

    def files(self) -> list[Path]:
        """Everything that belongs to the run, its description first."""
        return [self.path / "meta.yaml", *(path for _, path in _files(self.path))]

    def points(self) -> Iterator[tuple[str, int, int, float]]:
        """Key, step, time in milliseconds and value of each point."""
        for key, path in _files(self.path / "metrics"):
            for line in Source(path).lines():
                point = _point(line)
                if point is None:
                    self.bad += bool(line.strip())
                else:
                    yield key, *point


def file_runs(directory: Path) -> Iterator[FileRun]:
    """The runs in a store, an experiment, or a run's own directory."""
    for pattern in ("meta.yaml", "*/meta.yaml", "*/*/meta.yaml"):
        for meta in sorted(directory.glob(pattern)):
            if meta.is_file() and (meta.parent / "metrics").is_dir():
                run = _run(meta)
                if run is not None:
                    yield run


def _run(meta: Path) -> FileRun | None:
    described = _meta(meta)
    if described.get("lifecycle_stage") == "deleted":
        return None
    id_ = described.get("run_id") or meta.parent.name
    ended = described.get("end_time", "")
    return FileRun(
        path=meta.parent,
        id=id_,
        name=described.get("run_name") or id_,
        status=_STATUS.get(described.get("status", ""), ""),
        ended=(number(ended) or float("nan")) / 1000.0,
        settings={key: _text(path) for key, path in _files(meta.parent / "params")},
    )


def _meta(path: Path) -> dict[str, str]:
    """The flat `key: value` lines of a meta.yaml."""
    pairs = (line.partition(":") for line in _text(path).splitlines() if not line[:1].isspace())
    return {key.strip(): value.strip().strip("'\"") for key, colon, value in pairs if colon}


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_TEXT).decode("utf-8", "replace")
    except OSError as error:
        raise InputError(f"Couldn't read '{path}': {error.strerror}") from error


def _files(folder: Path) -> list[tuple[str, Path]]:
    """The files below a folder, by the key that their path spells."""
    files = []
    for path in folder.rglob("*"):
        if path.is_file():
            files.append((path.relative_to(folder).as_posix(), path))
        if len(files) > _MOST_FILES:
            raise InputError(f"Couldn't read '{folder}': more than {_MOST_FILES:,} files")
    return sorted(files)


def _point(line: bytes) -> tuple[int, int, float] | None:
    """Step, time and value of a line."""
    parts = line.split()
    if len(parts) < 2:
        return None
    try:
        step, time = int(parts[2]) if len(parts) > 2 else 0, int(parts[0])
        value = float(parts[1])
    except ValueError:
        return None
    return (step, time, value) if max(abs(step), abs(time)) < 2**62 else None
