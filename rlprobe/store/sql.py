"""A run's tables as DuckDB views: steps, ranks, workers, events, samples, and `lineage` of the run.

`lineage` holds, of each step, the row that the latest attempt logged; `line` is its earlier name.

Nothing but reading is possible: statements other than queries are refused, and the connection can
touch neither files nor settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from rlprobe import schema
from rlprobe.errors import UsageError
from rlprobe.store import arrow, codec, layout
from rlprobe.store.frame import Frame
from rlprobe.store.recording import Recording
from rlprobe.store.run import Run
from rlprobe.store.sql_source import shard_source
from rlprobe.values import Problem

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "memory_limit": "2GB",
    "temp_directory": "",
}
_NAMES_OF = {"steps": ("steps", "line"), "ranks": ("ranks",)}
_FETCHED = 10_000  # rows at a time
_MOST_CELLS = 50_000_000  # of an answer: some gigabytes of Python values
_READING = (duckdb.IOException, duckdb.InternalException, duckdb.InvalidInputException)
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
    if not isinstance(run, Recording):
        return _answer(run, statement, {table: _of_run(run, table) for table in schema.TABLES})
    problems: dict[Problem, None] = {}
    try:
        return _answer(run, statement, _stored(run, statement, problems), problems)
    except _UnreadableError:  # merged away since, or damaged in a place that nothing checks
        sources = _stored(run, statement, problems, at_once=True)
        return _answer(run, statement, sources, problems)


def _stored(
    run: Recording, statement: str, problems: dict[Problem, None], *, at_once: bool = False
) -> dict[str, Any]:
    """The tables of a recording; in memory where several of their rows are one step."""
    note = problems.setdefault
    sources = {t: shard_source(run.path, t, note, at_once=at_once) for t in schema.TABLES}
    words = statement.lower()
    for table, names in _NAMES_OF.items():
        if any(name in words for name in names) and run.is_logged_in_parts(table):
            sources[table] = _from_frame(run.steps if table == "steps" else run.ranks, table)
    return sources


class _UnreadableError(UsageError):
    """DuckDB could not read the rows."""


def _answer(
    run: Run, statement: str, sources: Mapping[str, Any], problems: Iterable[Problem] = ()
) -> Result:
    with duckdb.connect(":memory:", config=_SETTINGS) as connection:
        for table, source in sources.items():
            connection.register(table, source)
        connection.execute(_LINEAGE)
        connection.execute("SET lock_configuration = true")
        try:
            _check(connection, statement)
            cursor = connection.execute(statement)
            columns = tuple(str(column[0]) for column in cursor.description or ())
            return Result(columns, tuple(_fetched(cursor, len(columns))), tuple(problems))
        except UsageError:
            raise
        except Exception as error:  # DuckDB's own, or Python's of a value that it has no type for
            kind = _UnreadableError if isinstance(error, _READING) else UsageError
            path = run.path if isinstance(run, Recording) else run.info.path
            raise kind(
                f"Couldn't run the query on '{path}': {error or type(error).__name__}",
                hint=_hint(error),
            ) from error


def _fetched(cursor: duckdb.DuckDBPyConnection, width: int) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    while part := cursor.fetchmany(_FETCHED):
        rows += part
        if len(rows) * width > _MOST_CELLS:
            raise UsageError(
                f"Couldn't run the query: its answer has more than {_MOST_CELLS:,} values",
                hint="Ask for fewer rows (LIMIT), or for an aggregate of them.",
            )
    return rows


def _check(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    kinds = [part.type for part in connection.extract_statements(statement)]
    allowed = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}
    if len(kinds) != 1 or kinds[0] not in allowed:
        raise UsageError(
            "Couldn't run the query: it must be one statement that only reads",
            hint="Start it with SELECT; `rlprobe query PATH 'DESCRIBE steps'` shows columns.",
        )


def _hint(error: Exception) -> str:
    if isinstance(error, duckdb.CatalogException):
        return f"Tables: {', '.join((*schema.TABLES, 'lineage'))}."
    if isinstance(error, duckdb.BinderException):
        return "`DESCRIBE steps` lists the columns; names with `/` need double quotes."
    if isinstance(error, duckdb.OutOfMemoryException | MemoryError):
        return "Ask for fewer rows, or for an aggregate of them."
    return ""


def _of_run(run: Run, table: str) -> pa.Table:
    if table in {"steps", "ranks"}:
        return _from_frame(run.steps if table == "steps" else run.ranks, table)
    return _from_rows(run, table)


def _from_frame(frame: Frame, table: str) -> pa.Table:
    keys = {"step": frame.step, "attempt": frame.attempt, "rank": frame.rank, "time": frame.time}
    columns = {codec.metric_name(table, name): frame.load(name) for name in frame.names}
    stored = codec.metrics(table, keys, columns)
    fixed = [column.name for column in schema.tables()[table].columns if column.name in keys]
    return _without_unknown_times(stored.select([*fixed, *sorted(columns)]))


def _from_rows(run: Run, table: str) -> pa.Table:
    if table == "workers":  # no log tells of any
        return codec.rows(table, [])
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
