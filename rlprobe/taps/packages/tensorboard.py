"""TensorBoard: `SummaryWriter` of torch and of tensorboardX.

`add_scalar`, `add_scalars` (each below its main tag), `add_histogram` (mean, standard deviation,
extremes, 95th percentile), `add_text` (an event). A value without a step is the n-th of its tag.
"""

from __future__ import annotations

from typing import Any, Mapping

from ..hub import HUB
from ..streams import Stream
from ..values import numbers, of_array, scalar
from ..wrapping import tap


def install(module: Any) -> None:
    """Tap `SummaryWriter`."""
    writer = module.SummaryWriter
    tap(writer, "add_scalar", _add_scalar, "SummaryWriter.add_scalar")
    tap(writer, "add_scalars", _add_scalars, "SummaryWriter.add_scalars")
    tap(writer, "add_histogram", _add_histogram, "SummaryWriter.add_histogram")
    tap(writer, "add_text", _add_text, "SummaryWriter.add_text")
    tap(writer, "add_hparams", _add_hparams, "SummaryWriter.add_hparams")


def _stream(writer: Any) -> Stream:
    folder = getattr(writer, "log_dir", None) or getattr(writer, "logdir", None) or ""
    return Stream("tensorboard", str(folder), str(folder))


def _row(source: str, writer: Any, tag: str, values: Any, step: Any) -> None:
    stream = _stream(writer)
    HUB.row(source, stream, values, HUB.count((stream, tag)) if step is None else step)


def _add_scalar(
    writer: Any, tag: Any, scalar_value: Any, global_step: Any = None, *_: Any, **__: Any
) -> None:
    value = scalar(scalar_value)
    if value is not None:
        _row("SummaryWriter.add_scalar", writer, tag, {str(tag): value}, global_step)


def _add_scalars(
    writer: Any, main_tag: Any, tag_scalar_dict: Any, global_step: Any = None, *_: Any, **__: Any
) -> None:
    values = numbers(tag_scalar_dict, prefix=str(main_tag) + "/")
    _row("SummaryWriter.add_scalars", writer, main_tag, values, global_step)


def _add_histogram(
    writer: Any, tag: Any, values: Any, global_step: Any = None, *_: Any, **__: Any
) -> None:
    _row("SummaryWriter.add_histogram", writer, tag, of_array(str(tag), values), global_step)


def _add_text(
    writer: Any, tag: Any, text_string: Any, global_step: Any = None, *_: Any, **__: Any
) -> None:
    HUB.text("SummaryWriter.add_text", _stream(writer), str(tag), str(text_string), global_step)


def _add_hparams(writer: Any, hparam_dict: Any, metric_dict: Any, *_: Any, **__: Any) -> None:
    stream = _stream(writer)
    if isinstance(hparam_dict, Mapping):
        HUB.settings(stream, dict(hparam_dict))
    HUB.summary("SummaryWriter.add_hparams", stream, numbers(metric_dict))
