"""Where the writer puts its tables: Parquet shards of this process, merged as they grow.

What needs the processor (`encode`) and what waits for the disk (`write`) are apart: the writer
holds its lock for the one and never for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rlprobe import schema
from rlprobe.recorder.disk import DiskWatch
from rlprobe.store import layout

if TYPE_CHECKING:
    import pyarrow as pa

_MERGE_BYTES = 8 * 1024 * 1024  # larger shards stay as they are: merging them would cost memory


class Sink(Protocol):
    """Takes finished tables. Only the writer calls it."""

    def encode(self, table: str, rows: pa.Table) -> pa.Buffer:
        """The bytes of a shard."""
        ...

    def write(self, table: str, content: pa.Buffer, rows: int) -> None:
        """Make these bytes, of so many rows, durable before returning."""
        ...

    def tidy(self, lock: AbstractContextManager[object], interrupted: Callable[[], bool]) -> None:
        """Merge what has piled up, if it has; the lock is for work in memory."""
        ...

    def after_fork(self) -> None:
        """Start anew in a forked child, under names of its own."""
        ...


class ShardSink:
    """Writes Parquet shards under this process's own name.

    Attributes:
        written: rows made durable so far, by table.
    """

    def __init__(
        self, run_dir: Path, attempt: int, rank: int, writer: str, disk: DiskWatch
    ) -> None:
        self._run_dir = run_dir
        self._attempt = attempt
        self._rank = rank
        self._writer = writer
        self._disk = disk
        self._forget()

    def _forget(self) -> None:
        self.written: dict[str, int] = dict.fromkeys(schema.TABLES, 0)
        self._flushes: dict[str, int] = dict.fromkeys(schema.TABLES, 0)
        self._small: dict[str, list[layout.ShardName]] = {name: [] for name in schema.TABLES}

    def encode(self, table: str, rows: pa.Table) -> pa.Buffer:
        """The bytes of a shard."""
        from rlprobe.store import shards

        return shards.encode(table, rows)

    def write(self, table: str, content: pa.Buffer, rows: int) -> None:
        """Make these bytes, of so many rows, durable before returning."""
        from rlprobe.store import shards

        number = self._flushes[table]
        name = layout.ShardName(self._attempt, self._rank, self._writer, number, number)
        with self._disk:
            shards.write_encoded(self._run_dir / table, name, content)
        self._flushes[table] = number + 1
        self.written[table] += rows
        self._keep(table, name, content.size)

    def _keep(self, table: str, name: layout.ShardName, size: int) -> None:
        if size < _MERGE_BYTES:
            self._small[table].append(name)

    def replace(self, table: str, content: pa.Buffer, rows: int) -> None:
        """Let these bytes, of so many rows, take the place of all that was written so far."""
        from rlprobe.store import shards

        directory = self._run_dir / table
        flushes = max(self._flushes[table], 1)
        name = layout.ShardName(self._attempt, self._rank, self._writer, 0, flushes - 1)
        with self._disk:
            before = [one for one in layout.list_shards(directory) if one.stream == name.stream]
            shards.write_encoded(directory, name, content)
            shards.delete(directory, [one for one in before if one != name])
        self._flushes[table], self._small[table] = flushes, []
        self.written[table] = rows

    def tidy(self, lock: AbstractContextManager[object], interrupted: Callable[[], bool]) -> None:
        """Merge the shards of any size class that is full, unless somebody waits for the writer."""
        from rlprobe.store import shards

        for table in schema.TABLES:
            due = shards.due_for_merge(self._small[table])
            if not due or interrupted():
                continue
            try:
                self._merge(table, due, lock, interrupted)
            except Exception as error:  # they stay as they are, and are not tried again
                self._small[table] = [name for name in self._small[table] if name not in due]
                if not isinstance(error, shards.TooWideError):
                    raise

    def _merge(
        self,
        table: str,
        due: list[layout.ShardName],
        lock: AbstractContextManager[object],
        interrupted: Callable[[], bool],
    ) -> None:
        from rlprobe.store import shards

        directory = self._run_dir / table
        with self._disk:
            contents = [(directory / str(name)).read_bytes() for name in due]
        if interrupted():
            return
        with lock:
            content = shards.merge_encoded(table, due, contents)
        if interrupted():
            return
        merged = shards.replacement(due)
        with self._disk:
            shards.write_encoded(directory, merged, content)
            shards.delete(directory, due)
        self._small[table] = [name for name in self._small[table] if name not in due]
        self._keep(table, merged, content.size)

    def forget_shards(self, tables: Collection[str]) -> dict[str, int]:
        """Somebody deleted the shards of these tables; rows that are gone, by table."""
        gone = {table: rows for table, rows in self.written.items() if table in tables and rows}
        for table in set(tables) & set(self._small):
            self.written[table] = 0
            self._small[table] = []
        return gone

    def move(self, attempt: int) -> None:
        """Write under another attempt from now on (the launcher, when a job restarts itself)."""
        if attempt != self._attempt:
            self._attempt = attempt
            self._forget()

    def after_fork(self) -> None:
        """Start anew in a forked child, under names of its own."""
        self._writer = layout.new_writer_id()
        self._forget()
