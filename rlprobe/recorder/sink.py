"""Where the writer puts its tables: Parquet shards of this process, merged as they grow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rlprobe import schema
from rlprobe.store import layout

if TYPE_CHECKING:
    import pyarrow as pa

_MERGE_BYTES = 8 * 1024 * 1024  # larger shards stay as they are: merging them would cost memory


class Sink(Protocol):
    """Takes finished tables. Only the writer calls it, under the writer's lock."""

    def write(self, table: str, rows: pa.Table) -> None:
        """Make these rows durable before returning."""
        ...

    def tidy(self) -> None:
        """Merge what has piled up, if it has."""
        ...

    def after_fork(self) -> None:
        """Start anew in a forked child, under names of its own."""
        ...


class ShardSink:
    """Writes Parquet shards under this process's own name."""

    def __init__(self, run_dir: Path, attempt: int, rank: int, writer: str) -> None:
        self._run_dir = run_dir
        self._attempt = attempt
        self._rank = rank
        self._writer = writer
        self._forget()

    def _forget(self) -> None:
        self._flushes: dict[str, int] = dict.fromkeys(schema.TABLES, 0)
        self._small: dict[str, list[layout.ShardName]] = {name: [] for name in schema.TABLES}

    def write(self, table: str, rows: pa.Table) -> None:
        """Make these rows durable before returning."""
        from rlprobe.store import shards

        number = self._flushes[table]
        name = layout.ShardName(self._attempt, self._rank, self._writer, number, number)
        path = shards.write(self._run_dir / table, name, rows)
        self._flushes[table] = number + 1
        self._keep(table, name, path)

    def _keep(self, table: str, name: layout.ShardName, path: Path) -> None:
        if path.stat().st_size < _MERGE_BYTES:
            self._small[table].append(name)

    def tidy(self) -> None:
        """Merge the shards of any size class that is full."""
        from rlprobe.store import shards

        for table, small in self._small.items():
            due = shards.due_for_merge(small)
            if due:
                directory = self._run_dir / table
                merged = shards.merge(directory, due)
                self._small[table] = [name for name in small if name not in due]
                self._keep(table, merged, directory / str(merged))

    def move(self, attempt: int) -> None:
        """Write under another attempt from now on (the launcher, when a job restarts itself)."""
        if attempt != self._attempt:
            self._attempt = attempt
            self._forget()

    def after_fork(self) -> None:
        """Start anew in a forked child, under names of its own."""
        self._writer = layout.new_writer_id()
        self._forget()
