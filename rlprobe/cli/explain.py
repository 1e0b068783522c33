"""`rlprobe explain`: a page of the catalogue, or the list."""

from __future__ import annotations

from typing import Annotated

import typer

from rlprobe.cli import options


def explain(
    detector: Annotated[str | None, typer.Argument(metavar="[ID]", help="Default: a list.")] = None,
    format_: options.TextOrJson = "text",
    output: options.Output = None,
    detectors: options.Detectors = None,
    no_color: options.NoColor = False,
) -> int:
    """Explain a pathology, or list them all.

    What it is, how it is found, what to do, its knobs.
    """
    from rlprobe import catalog
    from rlprobe.cli.output import emit, layout
    from rlprobe.report import pages

    shape = layout(output, no_color=no_color)
    folders = tuple(detectors or ())
    if detector is None:
        known = tuple(catalog.load(folders).values())
        emit(pages.list_json(known) if format_ == "json" else pages.listing(known, shape), output)
        return 0
    found = catalog.get(detector, folders)
    emit(pages.page_json(found) if format_ == "json" else pages.page(found, shape), output)
    return 0
