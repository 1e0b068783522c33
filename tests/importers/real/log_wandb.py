"""Logs an offline W&B run: python log_wandb.py EXIT_CODE, in the directory that gets `wandb/`."""

from __future__ import annotations

import math
import sys

import wandb

VALUES = [0.30000000000000004, math.nan, math.inf, -math.inf, 1 / 3]


def main(code: str) -> None:
    config = {"beta": 0.04, "nested": {"a": [1, 2]}, "name": "x"}
    run = wandb.init(project="p", config=config, mode="offline")
    run.define_metric("*", step_metric="train/global_step", step_sync=True)
    for step in range(5):
        run.log({"train/loss": VALUES[step], "train/global_step": 10 * step, "flag": step > 2})
        run.log({"extra": step})
    run.log({"table": wandb.Table(columns=["a"], data=[[1]]), "h": wandb.Histogram([1, 2])})
    run.log({f"many/{index}": index / 3 for index in range(3000)})
    print("RuntimeError: CUDA out of memory", file=sys.stderr, flush=True)
    run.finish(exit_code=int(code))


main(*sys.argv[1:])
