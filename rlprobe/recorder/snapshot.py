"""Values on the training thread: what is immutable passes, what can change is copied.

No value is converted here and no device is waited for: a device tensor is cloned on its own stream
(a kernel launch), and the writer thread reads the clone later.
"""

from __future__ import annotations

import sys
from typing import Any

# Types whose instances cannot change under us. NumPy's scalar types join when first seen.
IMMUTABLE: set[type] = {float, int, bool, str, bytes, type(None), complex}


def snapshot(metrics: dict[str, Any]) -> dict[str, Any]:
    """The same mapping with every value that could change replaced by a copy."""
    return {name: freeze(value) for name, value in metrics.items()}


def freeze(value: Any) -> Any:
    """A value that later changes to the original do not reach."""
    kind = type(value)
    if kind in IMMUTABLE:
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
    return list(values)
