"""Norms and counts over many tensors, without collectives and without touching them.

Sharded tensors are judged by this rank's shard: a collective here could hang a job in which one
rank takes another path.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Named = tuple[str, torch.Tensor]

_FLOAT32_MAX = 3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class Damage:
    """What is not finite in a set of tensors.

    Attributes:
        overflow: every element is finite, but the norm overflows.
    """

    nan_count: int
    inf_count: int
    names: tuple[str, ...]
    overflow: bool = False


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The dense floating-point values that this process holds of a tensor."""
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.is_sparse:
        tensor = tensor._values()  # uncoalesced: duplicates do not hide a NaN
    return tensor.detach()


def gradients(parameters: Iterable[Named]) -> list[Named]:
    """The gradients that are there, with their parameters' names."""
    found = ((name, parameter.grad) for name, parameter in parameters)
    return [(name, local(grad)) for name, grad in found if grad is not None and grad.numel()]


def trainable(parameters: Iterable[Named]) -> list[Named]:
    """The floating-point weights that are trained."""
    return [
        (name, local(parameter))
        for name, parameter in parameters
        if parameter.requires_grad and parameter.is_floating_point() and parameter.numel()
    ]


def total_norm(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """L2 norm over all of them, on the first one's device; None if there are none."""
    if not tensors:
        return None
    with torch.no_grad():
        fused = getattr(torch.nn.utils, "get_total_norm", None)  # torch >= 2.6
        if fused is not None:
            norm: torch.Tensor = fused(tensors)
            return norm
        device = tensors[0].device
        each = [torch.linalg.vector_norm(tensor).to(device, torch.float32) for tensor in tensors]
        return torch.linalg.vector_norm(torch.stack(each))


def damage(named: Sequence[Named]) -> Damage | None:
    """What is not finite; None where a norm overflowed only in its own narrow precision."""
    with torch.no_grad():
        tensors = [tensor for _, tensor in named]
        nans = [int(torch.isnan(tensor).sum()) for tensor in tensors]
        infs = [int(torch.isinf(tensor).sum()) for tensor in tensors]
        bad = [name for (name, _), nan, inf in zip(named, nans, infs, strict=True) if nan or inf]
        if bad:
            return Damage(sum(nans), sum(infs), tuple(bad))
        each = [float(torch.linalg.vector_norm(t, dtype=torch.float64)) for t in tensors]
    overflows = math.hypot(*each) > _FLOAT32_MAX
    return Damage(0, 0, (), overflow=True) if overflows else None


def read(tensors: Sequence[Any]) -> list[float]:
    """Scalars as numbers, with one wait for the device where they share one."""
    if len({str(getattr(value, "device", "")) for value in tensors}) == 1 and len(tensors) > 1:
        stacked = torch.stack([value.detach().reshape(()).double() for value in tensors])
        numbers: list[float] = stacked.tolist()
        return numbers
    return [float(value) for value in tensors]
