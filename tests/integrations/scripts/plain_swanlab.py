"""A loop that logs to SwanLab, offline."""

import random
import sys

import outcome
import swanlab

outcome.seed(3)
rows = []
swanlab.init(project="plain", mode="offline", logdir="swanlog")
weight = 5.0
for step in range(30):
    gradient = 2 * weight + random.gauss(0, 0.1)
    weight -= 0.05 * gradient
    row = {"loss": weight**2, "grad_norm": abs(gradient)}
    swanlab.log(row, step=step)
    rows.append({"step": step, **row})
swanlab.finish()
outcome.write(sys.argv[1], outcome.by_name(rows, "step"), outcome.digest())
