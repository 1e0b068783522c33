"""Names in a run directory.

    run.json
    attempts/0001.json                     one launch
    attempts/0001/r00000-<writer>.json     one process of it: who, since when, how it ended
    steps/a0001-r00000-<writer>-00000000-00000007.parquet
    ranks/ workers/ events/ samples/       the same

A writer numbers its flushes; a shard covers a range of them. A merged shard covers the ranges of
the shards it replaces, so a reader that finds both (a kill between rename and delete) knows which
one to leave out: no shard is counted twice, and none is lost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MANIFEST = "run.json"
ATTEMPTS = "attempts"
SHARD_SUFFIX = ".parquet"
MOST_STEP = 2**62  # steps are below: their differences are whole numbers of 64 bits
NO_TIME = 0  # microseconds: `time` of rows from a log that does not tell when

_SHARD = re.compile(
    r"a(?P<attempt>[0-9]{4,9})-r(?P<rank>-?[0-9]{1,9})-(?P<writer>[A-Za-z0-9_.]+)"
    r"-(?P<first>[0-9]{8,15})-(?P<last>[0-9]{8,15})\.parquet"
)


@dataclass(frozen=True, slots=True)
class ShardName:
    """The parts of a shard's file name. `first`..`last`: the writer's flushes it covers."""

    attempt: int
    rank: int
    writer: str
    first: int
    last: int

    def __str__(self) -> str:
        stem = f"a{self.attempt:04d}-r{self.rank:05d}-{self.writer}"
        return f"{stem}-{self.first:08d}-{self.last:08d}{SHARD_SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> ShardName | None:
        """The parts of a file name, or None if it is no shard's."""
        match = _SHARD.fullmatch(name)
        if match is None:
            return None
        numbers = {key: int(match[key]) for key in ("attempt", "rank", "first", "last")}
        parsed = cls(writer=match["writer"], **numbers)
        return parsed if str(parsed) == name and parsed.first <= parsed.last else None

    @property
    def stream(self) -> tuple[int, int, str]:
        """What a range of flushes belongs to."""
        return self.attempt, self.rank, self.writer


def new_writer_id() -> str:
    """A name for this process's shards: host, process id, random. New after every fork."""
    import socket  # readers name no writer

    host = re.sub(r"[^A-Za-z0-9]", "", socket.gethostname())[:16] or "host"
    return f"{host}.{os.getpid()}.{os.urandom(3).hex()}"


def live_shards(names: Iterable[ShardName]) -> list[ShardName]:
    """The shards to read: those no other shard of the same writer covers. Sorted."""
    live: list[ShardName] = []
    for shard in sorted(names, key=lambda name: (*name.stream, name.first, -name.last)):
        previous = live[-1] if live else None
        covered = (
            previous is not None and previous.stream == shard.stream and shard.last <= previous.last
        )
        if not covered:
            live.append(shard)
    return live


def list_shards(directory: Path) -> list[ShardName]:
    """Every shard in a table's directory, superseded ones included; [] if there is none."""
    try:
        names = os.listdir(directory)  # noqa: PTH208 - a thousand ranks: no Path per file
    except FileNotFoundError:
        return []
    parsed = (ShardName.parse(name) for name in names)
    return [shard for shard in parsed if shard is not None]


def is_recording(path: Path) -> bool:
    """Whether a directory is a run directory."""
    return (path / MANIFEST).is_file() or (path / ATTEMPTS).is_dir()


def recordings_in(path: Path) -> list[Path]:
    """The recordings in a directory: itself, or those directly or one level below it."""
    if is_recording(path):
        return [path]
    if not path.is_dir():
        return []
    children = sorted(child for child in path.iterdir() if child.is_dir())
    recordings = [child for child in children if is_recording(child)]
    for child in children:
        if child not in recordings:
            below = sorted(grand for grand in child.iterdir() if grand.is_dir())
            recordings += [grand for grand in below if is_recording(grand)]
    return recordings
