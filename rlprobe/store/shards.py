"""Parquet shards: written under a temporary name and renamed, merged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rlprobe import schema
from rlprobe.errors import NewerFormatError, first_line
from rlprobe.store import checksum, files, layout, modes
from rlprobe.store.shard_file import FORMAT_KEY, SEALED_KEY, TABLE_KEY, ShardFile

MOST_COLUMNS = 50_000  # of a merged shard: half of what is read without a word
FAN_IN = 8  # shards of one size class that are merged into one of the next
ROW_GROUP = 131_072


class TooWideError(ValueError):
    """Rows, or shards, that have too many names together for one shard."""


def write(directory: Path, name: layout.ShardName, table: pa.Table) -> Path:
    """Write one shard durably; the table's folder is the name of the recording's table."""
    return write_encoded(directory, name, encode(directory.name, table))


def encode(table_name: str, table: pa.Table) -> pa.Buffer:
    """A shard's bytes. In memory, so that nobody who waits for Arrow waits for the disk."""
    metadata = {
        FORMAT_KEY: str(schema.FORMAT_VERSION),
        TABLE_KEY: table_name,
        SEALED_KEY: "1",
    }
    sealed = table.replace_schema_metadata(metadata)
    into = pa.BufferOutputStream()
    with pq.ParquetWriter(
        into,
        sealed.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=_text_columns(table.schema),
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(sealed, row_group_size=ROW_GROUP)
        writer.add_key_value_metadata({checksum.KEY: checksum.BLANK})
    content = into.getvalue()
    checksum.seal_parquet(memoryview(content))
    return content


def write_encoded(directory: Path, name: layout.ShardName, content: pa.Buffer) -> Path:
    """Write a shard's bytes durably."""
    path = directory / str(name)
    files.write_durably(path, lambda temporary: modes.write_bytes(temporary, content))
    return path


def _text_columns(arrow_schema: pa.Schema) -> list[str] | bool:
    names = [field.name for field in arrow_schema if pa.types.is_string(field.type)]
    return names or False


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of differing metric columns as one; a missing column is null."""
    return pa.concat_tables(tables, promote_options="default")


def merge(directory: Path, names: Sequence[layout.ShardName]) -> layout.ShardName:
    """Merge consecutive shards of one writer into one and delete them.

    Safe at any moment of death: until the deletes are through, readers prefer the merged shard.

    Raises:
        ValueError: one of them cannot be read; all stay as they are.
    """
    ordered = sorted(names, key=lambda name: name.first)
    contents = ((directory / str(name)).read_bytes() for name in ordered)
    merged = replacement(ordered)
    write_encoded(directory, merged, merge_encoded(directory.name, ordered, contents))
    delete(directory, names)
    return merged


def replacement(names: Sequence[layout.ShardName]) -> layout.ShardName:
    """The name of the shard that covers these."""
    first = min(names, key=lambda name: name.first)
    return layout.ShardName(*first.stream, first.first, max(name.last for name in names))


def merge_encoded(
    table_name: str, names: Sequence[layout.ShardName], contents: Iterable[bytes]
) -> pa.Buffer:
    """The bytes of the shard that replaces these, which come in the order of their flushes.

    Raises:
        ValueError: a shard's bytes are not what was written.
        TooWideError: together they would have too many columns.
    """
    tables = [_decode(name, content) for name, content in zip(names, contents, strict=True)]
    try:
        whole = concat(tables)
    except (pa.ArrowException, TypeError) as error:  # columns of one name and different types
        raise ValueError(f"they do not go together: {first_line(error)}") from error
    if whole.num_columns > MOST_COLUMNS:
        raise TooWideError(f"they have {whole.num_columns:,} columns together")
    return encode(table_name, whole)


def _decode(name: layout.ShardName, content: bytes) -> pa.Table:
    try:
        return ShardFile(Path(str(name)), content=content).read()
    except (ValueError, NewerFormatError) as error:
        raise ValueError(f"'{name}' cannot be read: {error}") from error


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
