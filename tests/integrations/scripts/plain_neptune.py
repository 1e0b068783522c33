"""A loop that logs to Neptune, offline."""

import json
import random
import sys
from pathlib import Path

import neptune
import outcome

outcome.seed(3)
run = neptune.init_run(
    mode="offline",
    capture_stdout=False,
    capture_stderr=False,
    capture_hardware_metrics=False,
    capture_traceback=False,
    git_ref=False,
    source_files=[],
)
weight = 5.0
for step in range(30):
    gradient = 2 * weight + random.gauss(0, 0.1)
    weight -= 0.05 * gradient
    run["train/loss"].append(weight**2, step=step)
    run["train"].append({"grad_norm": abs(gradient)}, step=step)
run.stop()
stored: outcome.Stored = {}
for path in Path(".neptune").rglob("data-*.log"):
    for line in path.read_text().splitlines():
        operation = json.loads(line)["obj"]
        if operation["type"] == "LogFloats":
            series = stored.setdefault("/".join(operation["path"]), {})
            series |= {value["step"]: value["value"] for value in operation["values"]}
outcome.write(sys.argv[1], stored, outcome.digest())
