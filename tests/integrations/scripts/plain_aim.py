"""A loop that logs to a local Aim repository, one by one and many at once."""

import random
import sys

import aim
import outcome

outcome.seed(3)
run = aim.Run(repo=".", system_tracking_interval=None, log_system_params=False)
weight = 5.0
for step in range(30):
    gradient = 2 * weight + random.gauss(0, 0.1)
    weight -= 0.05 * gradient
    run.track(weight**2, name="loss", step=step)
    run.track({"grad_norm": abs(gradient), "weight": weight}, step=step)
stored: outcome.Stored = {}
for metric in run.metrics():
    steps, columns = metric.data.items_list()
    stored[metric.name] = dict(zip(steps, columns[0], strict=True))
run.close()
outcome.write(sys.argv[1], stored, outcome.digest())
