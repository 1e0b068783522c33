"""Values on the training thread: what is immutable passes, what can change is copied and measured.

No value is converted here and no device is waited for: a device tensor is cloned on its own stream
(a kernel launch), and the writer thread reads the clone later.
"""

from __future__ import annotations

import sys
from typing import Any

from rlprobe.store.faults import is_of_value

# Types whose instances cannot change under us and are small. NumPy's scalar types join when first
# seen.
IMMUTABLE: set[type] = {float, int, bool, type(None), complex}
_TEXT = (str, bytes)
_PLAIN = frozenset({float, int, bool, type(None), str})
_LONGEST_NUMBER = 10_000  # characters: no longer text is a number
_MEASURED = 1000  # entries of a container that are looked at for its size


class Unrecordable:
    """Stands in for a value that could not be copied; becomes no number."""

    def __repr__(self) -> str:
        return "<could not be copied>"


def snapshot(metrics: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The same mapping with every value that could change replaced by a copy; its size in bytes."""
    copy = {name: _metric(value) for name, value in metrics.items()}
    return copy, 400 + sum(80 + size_of(value) for value in copy.values())


def _metric(value: Any) -> Any:
    if isinstance(value, _TEXT) and len(value) > _LONGEST_NUMBER:
        return Unrecordable()
    return safely_frozen(value)


def safely_frozen(value: Any) -> Any:
    """A copy, or what says that there is none: one odd value costs no other."""
    try:
        return freeze(value)
    except BaseException as error:  # a value's own code may raise anything
        if not is_of_value(error):
            raise
        return Unrecordable()


def freeze(value: Any) -> Any:
    """A value that later changes to the original do not reach."""
    kind = type(value)
    if kind in IMMUTABLE or kind in _TEXT:
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _freeze_tensor(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(value, numpy.generic):
            IMMUTABLE.add(kind)
            return value
        if isinstance(value, numpy.ndarray):
            return value.copy()
    if isinstance(value, list | tuple):
        return [freeze(item) for item in value]
    return value


def _freeze_tensor(tensor: Any) -> Any:
    tensor = tensor.detach()
    if tensor.device.type == "cpu" and tensor.ndim == 0:
        return tensor.item()
    return tensor.clone()


def frozen_data(value: Any, depth: int = 8) -> Any:
    """Data of an event, its containers copied; deeper ones are shared with the caller."""
    if depth and type(value) is dict:
        return {key: frozen_data(item, depth - 1) for key, item in value.items()}
    if depth and (type(value) is list or type(value) is tuple):
        return [frozen_data(item, depth - 1) for item in value]
    return value if isinstance(value, list | tuple) else safely_frozen(value)


def to_list(values: Any) -> Any:
    """A sequence argument (rewards, lengths, texts) that later changes do not reach."""
    if values is None:
        return None
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        return values.detach().clone()
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(values, numpy.ndarray):
        return values.copy()
    items = list(values)
    return items if _PLAIN.issuperset(map(type, items)) else [_shallow(item) for item in items]


def _shallow(item: Any) -> Any:
    """An entry: tensors and arrays are copied, conversations shared with the caller."""
    return item if isinstance(item, list | tuple | dict) else safely_frozen(item)


def size_of(value: Any, depth: int = 4) -> int:
    """About how many bytes a value holds in memory; of long containers, what their start says."""
    if isinstance(value, _TEXT):
        return sys.getsizeof(value)
    try:
        held = getattr(value, "nbytes", None)
    except BaseException as error:  # a property of somebody's class
        if not is_of_value(error):
            raise
        return 32
    if type(held) is int:
        return held + 100
    if depth and isinstance(value, dict):
        return 100 + _size_of_many([*value.keys(), *value.values()], depth)
    if depth and isinstance(value, list | tuple | set):
        return 100 + _size_of_many(value, depth)
    return 32


def _size_of_many(values: Any, depth: int) -> int:
    count = len(values)
    if count <= _MEASURED:
        return sum(size_of(value, depth - 1) + 8 for value in values)
    part = sum(
        size_of(value, depth - 1) + 8 for _, value in zip(range(_MEASURED), values, strict=False)
    )
    return part * count // _MEASURED
