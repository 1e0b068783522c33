"""Lists, NumPy arrays and torch tensors in; the same kind out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlprobe.errors import UsageError
from rlprobe.values import FloatArray


def floats(values: Any, name: str) -> tuple[FloatArray, float, Callable[[NDArray[Any]], Any]]:
    """The values as float64 on the host, the precision they came in, and the way back.

    The precision is the machine epsilon of the values' type, 0 for whole numbers: a float64 array
    that only carries results of a coarser type counts as float64.

    Raises:
        UsageError: the values are no numbers; the message names the argument.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        return _from_torch(values, torch)
    try:
        array = np.asarray(values)
        as_floats = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"Couldn't use '{name}': no numbers ({error})") from error
    if array.dtype.kind not in "fiub":
        raise UsageError(f"Couldn't use '{name}': no numbers (type {array.dtype})")
    precision = float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 0.0
    kind = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
    return as_floats, precision, lambda result: result.astype(kind) if _is_float(result) else result


def _is_float(result: NDArray[Any]) -> bool:
    return result.dtype.kind == "f"


def _from_torch(values: Any, torch: Any) -> tuple[FloatArray, float, Callable[[NDArray[Any]], Any]]:
    floating = values.dtype.is_floating_point
    precision = float(torch.finfo(values.dtype).eps) if floating else 0.0
    kind = values.dtype if floating else torch.get_default_dtype()

    def back(result: NDArray[Any]) -> Any:
        tensor = torch.from_numpy(np.ascontiguousarray(result)).to(values.device)
        return tensor.to(kind) if _is_float(result) else tensor

    return values.detach().to("cpu", torch.float64).numpy(), precision, back
