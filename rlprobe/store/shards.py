"""Parquet shards: written under a temporary name and renamed, listed, merged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rlprobe import schema
from rlprobe.errors import NewerFormatError
from rlprobe.store import files, layout
from rlprobe.values import Problem

FORMAT_KEY = b"rlprobe.format_version"
TABLE_KEY = b"rlprobe.table"
FAN_IN = 8  # shards of one size class that are merged into one of the next
ROW_GROUP = 131_072


def write(directory: Path, name: layout.ShardName, table: pa.Table) -> Path:
    """Write one shard durably; the table's folder is the name of the recording's table."""
    return write_encoded(directory, name, encode(directory.name, table))


def encode(table_name: str, table: pa.Table) -> pa.Buffer:
    """A shard's bytes. In memory, so that nobody who waits for Arrow waits for the disk."""
    metadata = {FORMAT_KEY: str(schema.FORMAT_VERSION), TABLE_KEY: table_name}
    into = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(metadata),
        into,
        compression="zstd",
        compression_level=1,
        use_dictionary=_text_columns(table.schema),
        write_statistics=False,
        write_page_checksum=True,
        row_group_size=ROW_GROUP,
    )
    return into.getvalue()


def write_encoded(directory: Path, name: layout.ShardName, content: pa.Buffer) -> Path:
    """Write a shard's bytes durably."""
    path = directory / str(name)
    files.write_durably(path, lambda temporary: temporary.write_bytes(content))
    return path


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

    Raises:
        ValueError: one of them cannot be read; all stay as they are.
    """
    contents = [(directory / str(name)).read_bytes() for name in names]
    merged = replacement(names)
    write_encoded(directory, merged, merge_encoded(directory.name, names, contents))
    delete(directory, names)
    return merged


def replacement(names: Sequence[layout.ShardName]) -> layout.ShardName:
    """The name of the shard that covers these."""
    first = min(names, key=lambda name: name.first)
    return layout.ShardName(*first.stream, first.first, max(name.last for name in names))


def merge_encoded(
    table_name: str, names: Sequence[layout.ShardName], contents: Sequence[bytes]
) -> pa.Buffer:
    """The bytes of the shard that replaces these.

    Raises:
        ValueError: a shard's bytes are not what was written.
    """
    ordered = sorted(zip(names, contents, strict=True), key=lambda pair: pair[0].first)
    return encode(table_name, concat([_decode(name, content) for name, content in ordered]))


def _decode(name: layout.ShardName, content: bytes) -> pa.Table:
    try:
        source = pa.BufferReader(content)
        file = pq.ParquetFile(source, page_checksum_verification=True)
        return file.read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"'{name}' cannot be read ({_first_line(error)})") from error


def delete(directory: Path, names: Sequence[layout.ShardName]) -> None:
    """Delete shards that another one replaces."""
    for name in names:
        (directory / str(name)).unlink(missing_ok=True)


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
