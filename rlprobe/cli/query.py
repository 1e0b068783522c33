"""`rlprobe query`: SQL over a run's tables."""

from __future__ import annotations

from collections.abc import Callable
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
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="CSV with control characters as they are; else they are escaped, except in a "
            "file written with --output.",
        ),
    ] = False,
    no_formulas: Annotated[
        bool,
        typer.Option(
            "--no-formulas",
            help="CSV for spreadsheets: a text that begins with =, +, - or @ gets a ' before it.",
        ),
    ] = False,
    step_key: options.StepKey = None,
    allow_large: options.AllowLarge = False,
    output: options.Output = None,
) -> int:
    """Ask a run's tables with SQL (DuckDB).

    `lineage` (or `line`) is the run through its attempts.
    """
    from functools import partial

    from rlprobe.cli.choosing import one_run
    from rlprobe.cli.output import emit, note_problems
    from rlprobe.report import listing
    from rlprobe.store import limits, sql

    limits.lift(allow_large)
    csv = partial(listing.rows_csv, raw=raw or output is not None, no_formulas=no_formulas)
    writers: dict[str, Callable[..., str]] = {
        "text": listing.rows_text,
        "csv": csv,
        "json": listing.rows_json,
    }
    result = sql.query(one_run(path, step_key), statement)
    note_problems(result.problems)
    emit(writers[format_](result.columns, result.rows), output)
    return 0
