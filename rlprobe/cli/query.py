"""`rlprobe query`: SQL over a run's tables."""

from __future__ import annotations

from typing import Annotated

import typer

from rlprobe.cli import options


def query(
    path: options.OnePath,
    statement: Annotated[
        str,
        typer.Argument(
            metavar="SQL", help="One SELECT over steps, ranks, events, samples, or lineage."
        ),
    ],
    *,
    format_: Annotated[str, options.formats("text", "csv", "json")] = "text",
    step_key: options.StepKey = None,
    output: options.Output = None,
) -> int:
    """Ask a run's tables with SQL (DuckDB).

    `lineage` (or `line`) is the run through its attempts.
    """
    from rlprobe.cli.choosing import one_run
    from rlprobe.cli.output import emit, note
    from rlprobe.report import listing
    from rlprobe.store import sql

    writers = {"text": listing.rows_text, "csv": listing.rows_csv, "json": listing.rows_json}
    result = sql.query(one_run(path, step_key), statement)
    for problem in result.problems:
        note(f"{problem.path}: {problem.message}")
    emit(writers[format_](result.columns, result.rows), output)
    return 0
