"""The rollouts of a recording: which steps have some, and their rows as they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from rlprobe import order_statistics
from rlprobe.errors import InputError, NewerFormatError
from rlprobe.store import arrow, records
from rlprobe.store.layout import ShardName
from rlprobe.store.shard_file import ShardError, ShardFile
from rlprobe.store.table_shards import Note, Remark, TableShards
from rlprobe.values import BoolArray, IntArray, Problem

_TABLE = "samples"
_WHOLE = 8 << 20  # bytes: a smaller shard is read at once, and every row of it is known to be good
_KEPT = 128 << 20  # bytes, about, of shards that were read and are kept
_LISTINGS = 100


class SampleShards:
    """The shards of `samples`. None stays open.

    Args:
        note: told what cannot be read.
    """

    def __init__(self, run_dir: Path, note: Note) -> None:
        self._root = run_dir
        self._note = note
        self._kept: dict[ShardName, pa.Table] = {}
        self._kept_bytes = 0
        self._index = self._listed()

    def _listed(self) -> list[tuple[ShardName, IntArray]]:
        return TableShards(self._root, _TABLE, self._note, self._steps).parts

    def _steps(
        self, name: ShardName, file: ShardFile, remark: Remark
    ) -> tuple[ShardName, IntArray]:
        if file.sealed and file.size > _WHOLE:
            return name, records.steps(file)
        stored = records.read(_TABLE, name, file, remark)
        self._keep(name, stored)
        return name, arrow.integers(stored.column("step"))

    def _keep(self, name: ShardName, stored: pa.Table) -> None:
        self._kept[name] = stored
        self._kept_bytes += stored.nbytes
        while self._kept_bytes > _KEPT and len(self._kept) > 1:
            self._kept_bytes -= self._kept.pop(next(iter(self._kept))).nbytes

    def steps(self) -> tuple[int, ...]:
        """Steps with rollouts, ascending."""
        if not self._index:
            return ()
        parts = np.concatenate([steps for _, steps in self._index])
        return tuple(int(step) for step in order_statistics.distinct(parts))

    def rows(self, step: int) -> Iterator[pa.Table]:
        """The rows of one step, shard by shard."""
        for stored in self._tables(step):
            chosen = arrow.integers(stored.column("step")) == step
            yield from _slices(stored, chosen)

    def _tables(self, step: int) -> list[pa.Table]:
        for _ in range(_LISTINGS):
            names = [name for name, steps in self._index if (steps == step).any()]
            try:
                tables = [self._table(name) for name in names]
            except FileNotFoundError:  # merged away since: the new shard has its rows
                self._index = self._listed()
                continue
            return [part for part in tables if part is not None]
        raise InputError(f"Couldn't read '{self._root / _TABLE}': it changes faster than that")

    def _table(self, name: ShardName) -> pa.Table | None:
        if name in self._kept:
            return self._kept[name]
        path = self._root / _TABLE / str(name)
        try:
            with ShardFile(path, self._root) as file:
                stored = records.read(_TABLE, name, file, self._remark(path))
        except (ShardError, NewerFormatError) as error:
            self._remark(path)(f"left out: {error}")
            return None
        self._keep(name, stored)
        return stored

    def _remark(self, path: Path) -> Remark:
        def remark(words: str) -> None:
            self._note(Problem(str(path), words, _TABLE))

        return remark


def _slices(table: pa.Table, chosen: BoolArray) -> Iterator[pa.Table]:
    """The chosen rows: no others are turned into objects."""
    for first in np.flatnonzero(chosen & ~np.append(False, chosen[:-1])):
        length = int(np.argmin(np.append(chosen[first:], False)))
        yield table.slice(int(first), length)
