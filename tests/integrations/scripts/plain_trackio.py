"""A loop that logs to trackio."""

import random
import sys

import outcome
import trackio
from trackio.sqlite_storage import SQLiteStorage

outcome.seed(3)
run = trackio.init(project="plain", name="one")
weight = 5.0
for step in range(30):
    gradient = 2 * weight + random.gauss(0, 0.1)
    weight -= 0.05 * gradient
    trackio.log({"loss": weight**2, "grad_norm": abs(gradient)}, step=step)
trackio.finish()
rows = SQLiteStorage.get_logs("plain", "one")
outcome.write(sys.argv[1], outcome.by_name(rows, "step"), outcome.digest())
