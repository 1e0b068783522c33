"""A loop that logs to tensorboardX."""

import random
import sys
from pathlib import Path

import outcome
from tensorboardX import SummaryWriter

outcome.seed(3)
writer = SummaryWriter("runs")
weight = 5.0
for step in range(30):
    gradient = 2 * weight + random.gauss(0, 0.1)
    weight -= 0.05 * gradient
    writer.add_scalar("loss", weight**2, step)
    writer.add_scalar("grad_norm", abs(gradient), global_step=step)
    writer.add_text("note", "a text", step)
writer.close()
outcome.write(sys.argv[1], outcome.events(Path("runs")), outcome.digest())
