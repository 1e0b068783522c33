"""The catalogue for `rlprobe explain`: generated from docstrings and knobs alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from rlprobe import numbers, schema
from rlprobe.detector import Detector, Knob
from rlprobe.report import escape
from rlprobe.report.json import dumps
from rlprobe.report.lines import SEVERITY_STYLES, paint, plain, wrap
from rlprobe.report.reporter import Layout


def listing(detectors: Sequence[type[Detector]], layout: Layout) -> str:
    """One line per detector: id, severity, title."""
    column = max((len(detector.id) for detector in detectors), default=0)
    lines: list[Text] = []
    for detector in detectors:
        word = detector.severity.label
        first = f"{detector.id:<{column}}  {word:<8}  "
        wrapped = wrap(
            escape.line(detector.title()), layout.columns, first=first, rest=" " * len(first)
        )
        line = Text(wrapped[0])
        line.stylize(SEVERITY_STYLES[word], column + 2, column + 10)
        lines += [line, *plain(wrapped[1:])]
    lines += [Text(), Text("`rlprobe explain ID` tells more.")]
    return paint(lines, layout)


def page(detector: type[Detector], layout: Layout) -> str:
    """One page: what the detector says of itself, what it needs, its knobs and fixed numbers."""
    word = detector.severity.label
    lines = [Text(f"{detector.id}   {word}", style=SEVERITY_STYLES[word]), Text()]
    text = escape.block(detector.page())
    lines += [Text(line, style="bold" if _is_heading(line) else "") for line in text]
    lines += [Text(), *_relations(detector, layout.columns)]
    lines += [*_knobs(detector, layout.columns), *_constants(detector, layout.columns)]
    return paint(lines, layout)


def _is_heading(line: str) -> bool:
    return bool(line) and not line.startswith(" ") and not line.endswith(".")


def _relations(detector: type[Detector], width: int) -> list[Text]:
    needs = "; or ".join(" and ".join(group) for group in detector.needs) or "nothing"
    lines = wrap(f"Needs: {needs}.", width, rest="    ")
    if detector.caused_by:
        lines += wrap(f"May follow from: {', '.join(detector.caused_by)}.", width, rest="    ")
    return plain(lines)


def _knobs(detector: type[Detector], width: int) -> list[Text]:
    knobs = detector.knobs()
    if not knobs:
        return []
    lines = [Text(), Text(f"Knobs ([knobs.{detector.id}] in rlprobe.toml)", style="bold")]
    for knob in knobs:
        lines += plain(wrap(_knob(knob), width, first="    ", rest="        "))
    return lines


def _constants(detector: type[Detector], width: int) -> list[Text]:
    constants = detector.constants()
    if not constants:
        return []
    lines = [Text(), Text("Fixed", style="bold")]
    for item in constants:
        source = f" ({item.source})" if item.source else ""
        line = escape.line(f"{item.name} = {item.shown}: {item.description}{source}")
        lines += plain(wrap(line, width, first="    ", rest="        "))
    return lines


def _knob(knob: Knob) -> str:
    unit = f" {knob.unit}" if knob.unit else ""
    limits = f"{_limit(knob.minimum)} … {_limit(knob.maximum)}"
    return f"{knob.name} = {knob.default:g}{unit} ({limits}): {escape.line(knob.description)}"


def _limit(value: float) -> str:
    return f"{value:g}" if math.isfinite(value) else numbers.number(value)


def list_json(detectors: Sequence[type[Detector]]) -> str:
    """Every detector, for programs."""
    return dumps(
        {
            "format_version": schema.REPORT_VERSION,
            "detectors": [_document(detector) for detector in detectors],
        }
    )


def page_json(detector: type[Detector]) -> str:
    """One detector, for programs."""
    return dumps({"format_version": schema.REPORT_VERSION, **_document(detector)})


def _document(detector: type[Detector]) -> dict[str, Any]:
    return {
        "id": detector.id,
        "severity": detector.severity.label,
        "title": detector.title(),
        "page": detector.page(),
        "needs": [list(group) for group in detector.needs],
        "caused_by": list(detector.caused_by),
        "knobs": [_knob_document(knob) for knob in detector.knobs()],
        "constants": [dataclasses.asdict(constant) for constant in detector.constants()],
    }


def _knob_document(knob: Knob) -> dict[str, Any]:
    return {
        "name": knob.name,
        "default": knob.default,
        "unit": knob.unit,
        "minimum": knob.minimum if math.isfinite(knob.minimum) else None,
        "maximum": knob.maximum if math.isfinite(knob.maximum) else None,
        "description": knob.description,
    }
