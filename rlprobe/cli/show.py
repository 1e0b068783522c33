"""`rlprobe show`: everything known about one step."""

from __future__ import annotations

from typing import Annotated

import typer

from rlprobe.cli import options

Option = typer.Option


def show(
    path: options.OnePath,
    *,
    step: Annotated[int, Option("--step", help="The step to show.")],
    window: Annotated[int, Option("--window", min=1, help="Values that make up the past.")] = 50,
    rank: Annotated[int | None, Option("--rank", help="One rank against its own past.")] = None,
    samples: Annotated[int, Option("--samples", min=0, help="Rollouts to show.")] = 3,
    attempt: Annotated[int | None, Option("--attempt", help="Default: the latest with it.")] = None,
    full: Annotated[bool, Option("--full", help="Whole texts of rollouts.")] = False,
    everything: Annotated[bool, Option("--all", help="What is as usual, too.")] = False,
    step_key: options.StepKey = None,
    allow_large: options.AllowLarge = False,
    format_: options.TextOrJson = "text",
    output: options.Output = None,
    no_color: options.NoColor = False,
) -> int:
    """Show everything known about one step.

    Metrics against their own past, events, ranks, groups, rollouts.
    """
    from rlprobe.cli.choosing import one_run
    from rlprobe.cli.output import emit, layout, note_problems
    from rlprobe.report import step_json, step_text
    from rlprobe.scan.step_view import view
    from rlprobe.store import limits

    limits.lift(allow_large)
    run = one_run(path, step_key)
    seen = view(run, step, attempt=attempt, window=window, rank=rank)
    note_problems(run.problems)
    if format_ == "json":
        emit(step_json.render(seen), output)
        return 0
    shape = layout(output, no_color=no_color)
    emit(step_text.render(seen, shape, samples=samples, whole=full, everything=everything), output)
    return 0
