"""What of a log was not understood, in a sentence: pieces that look like metrics, unknown names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlprobe import nearest, numbers
from rlprobe.findings import ScanReport
from rlprobe.report import escape
from rlprobe.values import Unread

_EXAMPLE = 72  # characters of a line that is quoted
_NAMES = 6

Quote = Callable[[str], str]  # sets a piece of the log apart that was made visible before


def unread(rows: int, account: Sequence[Unread], quote: Quote = '"{}"'.format) -> str:
    """How many pieces look like metrics and were not understood, and one of them.

    `Read 47 rows; 430 lines that look like metrics were not understood, e.g. line 200: "…".` Empty
    where everything was understood.
    """
    pieces = [item for item in account if item.count > 0]
    if not pieces:
        return ""
    things = " and ".join(numbers.plural(item.count, escape.name(item.thing)) for item in pieces)
    one = sum(item.count for item in pieces) == 1
    verb = "looks like metrics was" if one else "look like metrics were"
    example = next((_example(item, quote) for item in pieces if item.examples), "")
    return f"Read {numbers.plural(rows, 'row')}; {things} that {verb} not understood{example}."


def _example(item: Unread, quote: Quote) -> str:
    number, text = item.examples[0]
    of_file = f" of {escape.name(item.file(0))}" if item.file(0) else ""
    where = f"{escape.name(item.thing)} {number:,}{of_file}: " if number > 0 else ""
    return f", e.g. {where}{quote(nearest.excerpt(text, _EXAMPLE))}"


def unknown_names(report: ScanReport, quote: Quote = "{}".format) -> list[str]:
    """The names that no check knows, each with the metric that it is near to, in parts of a line.

    `Names that no check knows: actor/entropy_loss2 (near: entropy_loss) and 3 more.` Those come
    first that speak of a loss, a reward and the like. Empty where all are known.
    """
    names = report.unmapped_metrics
    if not names:
        return []
    first = nearest.telling_first(names)[:_NAMES]
    *shown, last = (_with_nearest(name, report.run.framework, quote) for name in first)
    more = [f"and {numbers.count(len(names) - _NAMES)} more."] if len(names) > _NAMES else []
    last = last if more else f"{last}."
    return ["Names that no check knows:", *(f"{name}," for name in shown), last, *more]


def _with_nearest(name: str, framework: str | None, quote: Quote) -> str:
    metric = nearest.nearest(name, framework)
    near = f" (near: {metric})" if metric else ""
    return f"{quote(escape.name(name))}{near}"
