"""Numbers as people read them: 1,428; 142.6; 7.6e-09; x168; +0.81; 12.4 MiB."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

_LARGE = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def count(value: int) -> str:
    """A whole number with thousands separators."""
    return f"{value:,}"


def steps(first: int | None, last: int | None) -> str:
    """A range of steps."""
    if first is None or last is None:
        return "no steps"
    return f"step {count(first)}" if first == last else f"steps {count(first)}-{count(last)}"


def plural(value: int, noun: str, many: str = "") -> str:
    """`1 rank`, `64 ranks`; `many` is the plural where it is not the noun with an `s`."""
    return f"{count(value)} {noun if value == 1 else many or noun + 's'}"


def counts(totals: Mapping[str, int]) -> str:
    """What was counted, by its key: `3 write failures, 1 dropped events rows`."""
    return ", ".join(f"{count(value)} {key.replace('_', ' ')}" for key, value in totals.items())


def kind(value: float) -> str | None:
    """`nan`, `inf` or `-inf`; None for a finite number."""
    if math.isfinite(value):
        return None
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"


def number(value: float) -> str:
    """A measured value in a column: three or four significant digits; NaN and Inf by name."""
    if not math.isfinite(value):
        return {"nan": "NaN", "inf": "Inf", "-inf": "-Inf"}[str(kind(value))]
    size = abs(value)
    if value == 0:
        return "0"
    if size >= 1e7 or size < 1e-4:
        return f"{value:.2g}"
    if size >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.{_digits(size)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def short(value: float) -> str:
    """A measured value in a sentence: three significant digits, `nan` and `inf` as such."""
    if not math.isfinite(value):
        return str(float(value))
    if value == 0:
        return "0"
    if abs(value) >= 1000 and abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def factor(value: float) -> str:
    """How many times, in a sentence: two significant digits."""
    return f"{value:.2g}"


def _digits(size: float) -> int:
    if size >= 1:
        return 1 if size >= 10 else 2
    return 2 - math.floor(math.log10(size))


def change(before: float, after: float) -> str:
    """`0.85 -> 142.6`."""
    return f"{number(before)} -> {number(after)}"


def ratio(value: float) -> str:
    """How many times: `x168`; as a percentage while it is near one: `+10 %`."""
    if 0.5 < value < 2:
        return f"{100 * (value - 1):+.0f} %".replace("+0 ", "0 ").replace("-0 ", "0 ")
    return f"x{value:.0f}" if 10 <= value < 1e5 else f"x{factor(value)}"


def difference(value: float) -> str:
    """A signed difference: `+0.81`."""
    return f"+{number(value)}" if value > 0 else number(value)


def confidence(value: float) -> str:
    """A confidence in two digits, never rounded up to certainty."""
    return f"{min(value, 0.99):.2f}" if value < 1 else "1.00"


def large(value: float) -> str:
    """A big round count: `4.1 B`."""
    for size, unit in _LARGE:
        if abs(value) >= size:
            return f"{value / size:.1f} {unit}"
    return number(value)


def size(value: int) -> str:
    """A size in bytes: `12.4 MiB`."""
    for limit, unit in _BYTES:
        if value >= limit:
            return f"{value / limit:.1f} {unit}"
    return f"{value} B"


def age(seconds: float) -> str:
    """How long something is ago, or lasts: `12 s`, `5 min`, `3 h`, `2 days`."""
    for limit, unit, of in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{int(max(seconds, 0) / of)} {unit}"
    return f"{int(seconds / 86_400)} days"


def moment(seconds: float) -> str:
    """A time in UTC; `?` where it is not known."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return "?"
