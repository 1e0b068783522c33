"""Parquet shards: written under a temporary name and renamed, listed, merged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rlprobe import schema
from rlprobe.errors import NewerFormatError
from rlprobe.store import checksum, files, layout
from rlprobe.values import Problem

FORMAT_KEY = b"rlprobe.format_version"
TABLE_KEY = b"rlprobe.table"
SEALED_KEY = b"rlprobe.sealed"  # the file has a checksum: where none is found, it is damaged
FAN_IN = 8  # shards of one size class that are merged into one of the next
ROW_GROUP = 131_072


def write(directory: Path, name: layout.ShardName, table: pa.Table) -> Path:
    """Write one shard durably; the table's folder is the name of the recording's table."""
    path = directory / str(name)
    metadata = {
        FORMAT_KEY: str(schema.FORMAT_VERSION),
        TABLE_KEY: directory.name,
        SEALED_KEY: "1",
    }
    temporary = files.temporary_beside(path)
    try:
        _write_sealed(temporary, table.replace_schema_metadata(metadata))
        files.commit(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def _write_sealed(path: Path, table: pa.Table) -> None:
    writer = pq.ParquetWriter(
        path,
        table.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=_text_columns(table.schema),
        write_statistics=False,
        write_page_checksum=True,
    )
    with writer:
        writer.write_table(table, row_group_size=ROW_GROUP)
        writer.add_key_value_metadata({checksum.KEY: checksum.BLANK})
    checksum.seal_parquet(path)


def _text_columns(arrow_schema: pa.Schema) -> list[str] | bool:
    names = [field.name for field in arrow_schema if pa.types.is_string(field.type)]
    return names or False


def open_shard(path: Path) -> pq.ParquetFile:
    """Open one shard and check that it is ours.

    Raises:
        NewerFormatError: written by a newer rlprobe.
        ValueError: no shard of a recording, torn, or unreadable; the message says which.
        FileNotFoundError: merged away since it was listed.
    """
    try:
        file = pq.ParquetFile(path)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"torn or not Parquet ({_first_line(error)})") from error
    metadata = file.schema_arrow.metadata or {}
    version = metadata.get(FORMAT_KEY, b"")
    if not version.isdigit():
        raise ValueError("a Parquet file that rlprobe did not write")
    if int(version) > schema.FORMAT_VERSION:
        raise NewerFormatError(
            f"Couldn't read '{path}': format {int(version)}, this rlprobe knows "
            f"{schema.FORMAT_VERSION}",
            hint="Upgrade rlprobe.",
        )
    return file


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


def open_table(directory: Path) -> tuple[list[pq.ParquetFile], list[Problem]]:
    """Open every live shard of a table, and say which files had to be left out.

    A shard may be merged away between listing and opening; then the directory is listed again.
    """
    for _ in range(20):
        problems = _strangers(directory)
        opened: list[pq.ParquetFile] = []
        try:
            for name in layout.live_shards(layout.list_shards(directory)):
                _open_into(directory / str(name), opened, problems)
        except FileNotFoundError:
            continue
        return opened, problems
    raise OSError(f"'{directory}' changes faster than it can be read")


def _open_into(path: Path, opened: list[pq.ParquetFile], problems: list[Problem]) -> None:
    try:
        opened.append(open_shard(path))
    except ValueError as error:
        problems.append(Problem(str(path), f"left out: {error}"))
    except NewerFormatError as error:
        problems.append(Problem(str(path), f"left out: {error}. {error.hint}"))


def _strangers(directory: Path) -> list[Problem]:
    """Parquet files whose names are not ours: foreign, worth a word, never read."""
    if not directory.is_dir():
        return []
    strange = [
        entry.name
        for entry in directory.iterdir()
        if entry.name.endswith(layout.SHARD_SUFFIX) and not layout.ShardName.parse(entry.name)
    ]
    return [Problem(str(directory / name), "left out: not a shard's name") for name in strange]


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of differing metric columns as one; a missing column is null."""
    return pa.concat_tables(tables, promote_options="default")


def merge(directory: Path, names: Sequence[layout.ShardName]) -> layout.ShardName:
    """Merge consecutive shards of one writer into one and delete them.

    Safe at any moment of death: until the deletes are through, readers prefer the merged shard.
    """
    ordered = sorted(names, key=lambda name: name.first)
    merged = layout.ShardName(*ordered[0].stream, ordered[0].first, ordered[-1].last)
    tables = [open_shard(directory / str(name)).read(use_threads=False) for name in ordered]
    write(directory, merged, concat(tables))
    for name in ordered:
        (directory / str(name)).unlink(missing_ok=True)
    return merged


def due_for_merge(own: Sequence[layout.ShardName]) -> list[layout.ShardName]:
    """The shards of one writer that should be merged now, or [].

    Size classes are powers of FAN_IN flushes: a row is rewritten once per class, and at most
    FAN_IN - 1 shards per class remain, however long the run.
    """
    classes: dict[int, list[layout.ShardName]] = {}
    for name in own:
        classes.setdefault(_size_class(name), []).append(name)
    for size in sorted(classes):
        for run in _contiguous(sorted(classes[size], key=lambda name: name.first)):
            if len(run) >= FAN_IN:
                return run[:FAN_IN]
    return []


def _contiguous(ordered: Sequence[layout.ShardName]) -> list[list[layout.ShardName]]:
    """Runs without a gap: a merged shard claims its whole range, so nothing may lie between."""
    runs: list[list[layout.ShardName]] = []
    for name in ordered:
        if runs and runs[-1][-1].last + 1 == name.first:
            runs[-1].append(name)
        else:
            runs.append([name])
    return runs


def _size_class(name: layout.ShardName) -> int:
    size, flushes = 0, name.last - name.first + 1
    while flushes >= FAN_IN:
        flushes //= FAN_IN
        size += 1
    return size
