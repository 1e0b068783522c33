"""Numbers among what a tracker was given. Nothing is converted here, and no device waited for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Dict, List

_PLAIN = {float, int, bool}  # NumPy's join when first seen
_is_plain = _PLAIN.issuperset
_TEXT = (str, bytes, bytearray)
_HIGH = 0.95
_MOST = 16_000_000  # values of a tensor whose percentile torch computes
_DEPTH = 8  # of mappings in mappings


def numbers(given: Any, separator: str = "/", prefix: str = "") -> Dict[str, Any]:
    """The numbers of a mapping under their names; those of mappings within, under a joined name.

    Scalars stay what they are (Python, NumPy, a tensor of one element wherever it is); a histogram
    becomes its mean, standard deviation, extremes and 95th percentile. Text, media and objects are
    no metrics and left out.

    Args:
        separator: between the names of a mapping and of what is in it.
        prefix: before each name.
    """
    if not prefix and _is_plain(map(type, given.values())) and _has_plain_names(given):
        return dict(given)
    into: Dict[str, Any] = {}
    _collect(given, prefix, separator, into, _DEPTH)
    return into


def _has_plain_names(given: Any) -> bool:
    return {str}.issuperset(map(type, given))


def _collect(
    given: Any,
    prefix: str,
    separator: str,
    into: Dict[str, Any],
    depth: int,
) -> None:
    for key, value in given.items():
        name = prefix + (key if type(key) is str else str(key))
        if type(value) in _PLAIN:
            into[name] = value
        elif value is None or isinstance(value, _TEXT):
            continue
        elif isinstance(value, Mapping):
            if depth and "_type" not in value:  # media that a tracker has written down already
                _collect(value, name + separator, separator, into, depth - 1)
        else:
            _add(name, value, into)


def _add(name: str, value: Any, into: Dict[str, Any]) -> None:
    number = scalar(value)
    if number is not None:
        into[name] = number
        return
    bins, counts = getattr(value, "bins", None), getattr(value, "histogram", None)
    if bins is not None and counts is not None:
        into.update(of_histogram(name, bins, counts))


def scalar(value: Any) -> Any:
    """A number as it is, or with no dimensions where it is an array of one; None if it is none."""
    if type(value) in _PLAIN:
        return value
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.number, numpy.bool_)):
        _PLAIN.add(type(value))
    if isinstance(value, (int, float)):
        return value
    shape = getattr(value, "shape", None)
    if shape is None or not hasattr(value, "dtype"):
        return value if _is_number(value) else None
    if len(shape) == 0:
        return value
    if all(size == 1 for size in shape):
        return value.reshape(())
    return None


def _is_number(value: Any) -> bool:
    """A Fraction or a Decimal is one; what merely has a length, or a text, is none."""
    return hasattr(type(value), "__float__") and not hasattr(type(value), "__len__")


def of_histogram(name: str, bins: Any, counts: Any) -> Dict[str, float]:
    """Mean, standard deviation, extremes and 95th percentile of a histogram.

    Args:
        bins: edges, one more than there are counts.
    """
    edges = [float(edge) for edge in bins]
    weights = [float(count) for count in counts]
    total = sum(weights)
    if len(edges) != len(weights) + 1 or not total > 0:
        return {}
    middles = [(low + high) / 2 for low, high in zip(edges, edges[1:])]
    mean = sum(middle * weight for middle, weight in zip(middles, weights)) / total
    square = sum(weight * (middle - mean) ** 2 for middle, weight in zip(middles, weights)) / total
    held = [place for place, weight in enumerate(weights) if weight > 0]
    return {
        name + "_mean": mean,
        name + "_std": square**0.5,
        name + "_min": edges[held[0]],
        name + "_max": edges[held[-1] + 1],
        name + "_p95": _quantile_of_bins(edges, weights, _HIGH * total),
    }


def _quantile_of_bins(edges: List[float], weights: List[float], wanted: float) -> float:
    """Where so much of the weight lies below, if each bin is filled evenly."""
    below = 0.0
    for place, weight in enumerate(weights):
        if weight > 0 and below + weight >= wanted:
            share = (wanted - below) / weight
            return edges[place] + share * (edges[place + 1] - edges[place])
        below += weight
    return edges[-1]


def of_array(name: str, values: Any) -> Dict[str, Any]:
    """Mean, standard deviation, extremes and 95th percentile of an array or a tensor.

    A tensor's are computed where it lies, and nothing waits for its device.
    """
    value = values.detach() if hasattr(values, "detach") else values
    if not hasattr(value, "dtype"):
        listed = [float(item) for item in value]
        if not listed:
            return {}
        mean = sum(listed) / len(listed)
        square = sum((item - mean) ** 2 for item in listed) / len(listed)
        return {
            name + "_mean": mean,
            name + "_std": square**0.5,
            name + "_min": min(listed),
            name + "_max": max(listed),
            name + "_p95": _quantile(sorted(listed), _HIGH),
        }
    if 0 in tuple(value.shape):
        return {}
    floats = value.double() if hasattr(value, "double") else value.astype("float64")
    middle = floats.mean()
    whole = {
        name + "_mean": middle,
        name + "_std": ((floats - middle) ** 2).mean() ** 0.5,
        name + "_min": floats.min(),
        name + "_max": floats.max(),
    }
    if hasattr(floats, "quantile"):  # a tensor, of which torch takes so many at most
        flat = floats.flatten()
        return {**whole, name + "_p95": flat.quantile(_HIGH)} if len(flat) <= _MOST else whole
    return {**whole, name + "_p95": sys.modules["numpy"].quantile(floats, _HIGH)}


def _quantile(ordered: List[float], share: float) -> float:
    """By interpolation between neighbours, as NumPy's."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
