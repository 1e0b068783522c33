"""Logs two launches with tensorboardX or torch: python log_tensorboard.py LIBRARY OUT."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

VALUES = [0.1, math.nan, math.inf, -math.inf, 1 / 3]


def writer_of(library: str, folder: str) -> Any:
    if library == "tensorboardX":
        from tensorboardX import SummaryWriter
    else:
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter(folder)


def main(library: str, folder: str) -> None:
    import numpy as np

    for first, last in ((0, 30), (20, 50)):
        writer = writer_of(library, folder)
        writer.add_text("args", "some text")
        writer.add_histogram("weights", np.arange(10.0), 0)
        for step in range(first, last):
            writer.add_scalar("train/loss", VALUES[step % 5], step)
            writer.add_scalar("train/reward", step / 7, step)
        writer.add_scalars("kl", {"mean": 0.5, "max": 2.0}, first)
        if library == "torch":
            writer.add_scalar("new", 0.25, first, new_style=True)
            writer.add_scalar("double", 0.1, first, new_style=True, double_precision=True)
        writer.close()
        time.sleep(1.1)  # files are named by the second


main(*sys.argv[1:])
