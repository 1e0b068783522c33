"""The live shards of a table, opened one by one, and what is wrong with the others.

A shard may be merged away between listing and opening: then the directory is listed again, and what
has been opened already stays so.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from rlprobe.errors import InputError, NewerFormatError
from rlprobe.store import admission, layout, limits
from rlprobe.store.layout import ShardName
from rlprobe.store.shard_file import ShardError, ShardFile
from rlprobe.values import Problem

_LISTINGS = 100

T = TypeVar("T")
Remark = Callable[[str], None]
Note = Callable[[Problem], None]
Read = Callable[[ShardName, ShardFile, Remark], T]


class TableShards(Generic[T]):
    """What was made of each live shard of a table.

    Attributes:
        parts: in the order of the shards.

    Args:
        note: told what was left out, and why; also later, when something more is read.
        read: makes something of an open shard; told how to remark on it. It raises ShardError where
            nothing can be made of it.
        keep_open: whether the files stay open, for what is read later.
    """

    def __init__(
        self, run_dir: Path, table: str, note: Note, read: Read[T], *, keep_open: bool = False
    ) -> None:
        self._root = run_dir
        self._table = table
        self._note = note
        self._read = read
        self._keep_open = keep_open
        self._directory = run_dir / table
        self._made: dict[ShardName, T | None] = {}
        self._amount = limits.NOTHING
        why = admission.directory_problem(self._directory, run_dir)
        if why:
            note(Problem(str(self._directory), f"left out: {why}", table))
        self.parts: list[T] = [] if why else self._all()

    def _all(self) -> list[T]:
        for _ in range(_LISTINGS):
            names = layout.live_shards(layout.list_shards(self._directory))
            try:
                parts = [self._one(name) for name in names]
            except FileNotFoundError:
                continue
            for stranger in strangers(self._directory):
                self._note(stranger)
            return [part for part in parts if part is not None]
        raise InputError(f"Couldn't read '{self._directory}': it changes faster than that")

    def _one(self, name: ShardName) -> T | None:
        if name not in self._made:
            self._made[name] = self._opened(name)
        return self._made[name]

    def _opened(self, name: ShardName) -> T | None:
        path = self._directory / str(name)
        try:
            file = ShardFile(path, self._root)
        except ShardError as error:
            self._remark(path, f"left out: {error}")
            return None
        except NewerFormatError as error:
            self._remark(path, f"left out: {error}. {error.hint}")
            return None
        try:
            self._amount = file.check_size(self._table, self._amount)
            return self._read(name, file, lambda words: self._remark(path, words))
        except ShardError as error:
            file.close()
            self._remark(path, f"left out: {error}")
            return None
        finally:
            if not self._keep_open:
                file.close()

    def _remark(self, path: Path, words: str) -> None:
        self._note(Problem(str(path), words, self._table))


def strangers(directory: Path) -> list[Problem]:
    """Parquet files whose names are not ours: foreign, worth a word, never read."""
    if not directory.is_dir():
        return []
    strange = sorted(
        entry.name
        for entry in directory.iterdir()
        if entry.name.endswith(layout.SHARD_SUFFIX) and not ShardName.parse(entry.name)
    )
    return [Problem(str(directory / name), "left out: not a shard's name") for name in strange]


def count(run_dir: Path, table: str) -> int:
    """How many live shards a table has."""
    directory = run_dir / table
    if admission.directory_problem(directory, run_dir):
        return 0
    return len(layout.live_shards(layout.list_shards(directory)))
