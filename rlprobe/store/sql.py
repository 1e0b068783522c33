"""A run's tables as DuckDB views: steps, ranks, events, samples, and `lineage` of the run.

`lineage` holds, of each step, the row that the latest attempt logged; `line` is its earlier name.

Nothing but reading is possible: statements other than queries are refused, and the connection can
touch neither files nor settings. The views stand on Arrow data sets over the live shards, so that
DuckDB reads only the columns and rows a query asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from rlprobe import schema
from rlprobe.errors import NewerFormatError, UsageError
from rlprobe.store import arrow, codec, layout, shards
from rlprobe.store.frame import Frame
from rlprobe.store.recording import Recording
from rlprobe.store.run import Run
from rlprobe.values import Problem

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
# A row of an earlier attempt is off the lineage from the first step of any later attempt on.
_LINEAGE = """
CREATE VIEW lineage AS
SELECT steps.* FROM steps JOIN (
    SELECT attempt, min(first) OVER (
        ORDER BY attempt DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS overtaken
    FROM (SELECT attempt, min(step) AS first FROM steps GROUP BY attempt)
) USING (attempt)
WHERE overtaken IS NULL OR step < overtaken;
CREATE VIEW line AS SELECT * FROM lineage
"""


@dataclass(frozen=True, slots=True)
class Result:
    """Rows of a query, and the shards that had to be left out."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    problems: tuple[Problem, ...] = ()


def query(run: Run, statement: str) -> Result:
    """Run one query over a run's tables.

    Raises:
        UsageError: the statement is not a query, or DuckDB refuses it.
    """
    problems: list[Problem] = []
    with duckdb.connect(":memory:", config=_SETTINGS) as connection:
        for table in schema.TABLES:
            connection.register(table, _source(run, table, problems))
        connection.execute(_LINEAGE)
        connection.execute("SET lock_configuration = true")
        try:
            _check(connection, statement)
            cursor = connection.execute(statement)
            columns = tuple(str(column[0]) for column in cursor.description or ())
            return Result(columns, tuple(cursor.fetchall()), tuple(problems))
        except duckdb.Error as error:
            raise UsageError(
                f"Couldn't run the query on '{run.info.path}': {error}", hint=_hint(error)
            ) from error


def _check(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    kinds = [part.type for part in connection.extract_statements(statement)]
    allowed = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}
    if len(kinds) != 1 or kinds[0] not in allowed:
        raise UsageError(
            "Couldn't run the query: it must be one statement that only reads",
            hint="Start it with SELECT; `rlprobe query PATH 'DESCRIBE steps'` shows columns.",
        )


def _hint(error: duckdb.Error) -> str:
    if isinstance(error, duckdb.CatalogException):
        return f"Tables: {', '.join((*schema.TABLES, 'lineage'))}."
    if isinstance(error, duckdb.BinderException):
        return "`DESCRIBE steps` lists the columns; names with `/` need double quotes."
    return ""


def _source(run: Run, table: str, problems: list[Problem]) -> Any:
    if isinstance(run, Recording):
        return _dataset(run.path / table, problems)
    if table in {"steps", "ranks"}:
        return _from_frame(run.steps if table == "steps" else run.ranks, table)
    return _from_rows(run, table)


def _dataset(directory: Path, problems: list[Problem]) -> Any:
    readable, schemas = [], [pa.schema(schema.arrow_fields(directory.name))]
    for name in layout.live_shards(layout.list_shards(directory)):
        path = directory / str(name)
        try:
            own = shards.open_shard(path).schema_arrow.remove_metadata()
        except (ValueError, NewerFormatError) as error:
            problems.append(Problem(str(path), f"left out: {error}"))
            continue
        readable.append(str(path))
        schemas.append(own)
    # Metric columns differ from shard to shard; a column that a shard lacks reads as null there.
    whole = pa.unify_schemas(schemas, promote_options="permissive")
    if not readable:
        return whole.empty_table()
    return ds.dataset(readable, schema=whole, format="parquet")


def _from_frame(frame: Frame, table: str) -> pa.Table:
    keys = {"step": frame.step, "attempt": frame.attempt, "rank": frame.rank, "time": frame.time}
    columns = {codec.metric_name(table, name): frame.load(name) for name in frame.names}
    stored = codec.metrics(table, keys, columns)
    fixed = [column.name for column in schema.tables()[table].columns if column.name in keys]
    return _without_unknown_times(stored.select([*fixed, *sorted(columns)]))


def _from_rows(run: Run, table: str) -> pa.Table:
    if table == "events":
        return _without_unknown_times(codec.rows(table, map(codec.event_row, run.events)))
    rollouts = (rollout for step in run.sample_steps() for rollout in run.rollouts(step))
    return codec.rows(table, map(codec.rollout_row, rollouts))


def _without_unknown_times(stored: pa.Table) -> pa.Table:
    """A log that does not tell when: null rather than what a recording writes for it."""
    micros = arrow.integers(stored["time"])
    times = arrow.from_numpy(micros, arrow.MICROSECONDS, micros != layout.NO_TIME)
    place = stored.schema.get_field_index("time")
    return stored.set_column(place, pa.field("time", times.type), times)
