"""The live shards of a table as DuckDB reads them.

DuckDB checks nothing of what it reads. So a shard is checked here before; one that is as it should
be becomes part of an Arrow data set, of which only the columns and rows are read that a query asks
for, and of any other the rows that count are read at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from rlprobe import schema
from rlprobe.store import arrow, codec, metric_shards, records, table_shards
from rlprobe.store.layout import ShardName
from rlprobe.store.shard_file import ShardFile
from rlprobe.store.table_shards import Note, Remark, TableShards

_MOST_FILES = 64  # of a data set; of more, small ones are read at once
_SMALL = 1 << 20  # bytes: a smaller shard of texts is read at once


def shard_source(run_dir: Path, table: str, note: Note, *, at_once: bool = False) -> Any:
    """A table as a data set, or as rows in memory.

    Args:
        note: told what was left out.
        at_once: read every row now.
    """
    least = 0 if table_shards.count(run_dir, table) <= _MOST_FILES else _SMALL

    def read(name: ShardName, file: ShardFile, remark: Remark) -> tuple[pa.Schema, Any]:
        lazily = not at_once and file.sealed and file.size >= least
        if lazily and _as_written(table, file):
            if schema.tables()[table].metrics:
                return _schema(file), str(file.path)
            rows = records.read(table, name, file, remark)  # which checks how much text it is
            if file.size >= _SMALL:
                return _schema(file), str(file.path)
            rows = _plain(rows)
            return rows.schema, rows
        rows = _rows(table, name, file, remark)
        return rows.schema, rows

    parts = TableShards(run_dir, table, note, read).parts
    schemas = [pa.schema(schema.arrow_fields(table)), *(own for own, _ in parts)]
    # Metric columns differ from shard to shard; a column that a shard lacks reads as null there.
    whole = pa.unify_schemas(schemas, promote_options="permissive")
    return _together(whole, [source for _, source in parts])


def _as_written(table: str, file: ShardFile) -> bool:
    """Whether every column has the type that the recorder gives it."""
    fixed = {field.name: field.type for field in schema.arrow_fields(table)}
    doubles = schema.tables()[table].metrics
    if file.twice or (not doubles and file.types.keys() != fixed.keys()):
        return False
    return all(kind == fixed.get(name, pa.float64()) for name, kind in file.types.items())


def _schema(file: ShardFile) -> pa.Schema:
    return pa.schema(list(file.types.items()))


def _rows(table: str, name: ShardName, file: ShardFile, remark: Remark) -> pa.Table:
    if not schema.tables()[table].metrics:
        return _plain(records.read(table, name, file, remark))
    shard = metric_shards.metric_shard(table, name, file, remark, whole=True)
    frame = metric_shards.frame([shard])
    keys = {"step": frame.step, "attempt": frame.attempt, "rank": frame.rank, "time": frame.time}
    return codec.metrics(table, keys, {name: frame.load(name) for name in frame.names})


def _plain(rows: pa.Table) -> pa.Table:
    """Texts out of their dictionaries."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            values = arrow.python_values(rows.column(place))
            column = pa.chunked_array([arrow.from_list(values, pa.string())])
            rows = rows.set_column(place, pa.field(field.name, pa.string()), column)
    return rows


def _together(whole: pa.Schema, sources: list[Any]) -> Any:
    tables = [source for source in sources if isinstance(source, pa.Table)]
    paths = [source for source in sources if isinstance(source, str)]
    parts: list[Any] = []
    if tables or not paths:
        rows = pa.concat_tables([whole.empty_table(), *tables], promote_options="default")
        parts.append(ds.dataset(rows.select(whole.names)))
    if paths:
        parts.append(ds.dataset(paths, schema=whole, format="parquet"))
    return parts[0] if len(parts) == 1 else ds.dataset(parts)
