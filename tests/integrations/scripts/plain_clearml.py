"""A loop that logs to ClearML, offline."""

import json
import random
import sys
import zipfile
from pathlib import Path

import clearml
import outcome

outcome.seed(3)
clearml.Task.set_offline(offline_mode=True)
task = clearml.Task.init(
    project_name="plain",
    task_name="one",
    auto_connect_frameworks=False,
    auto_connect_streams=False,
    auto_resource_monitoring=False,
)
logger = task.get_logger()
weight = 5.0
for step in range(30):
    gradient = 2 * weight + random.gauss(0, 0.1)
    weight -= 0.05 * gradient
    logger.report_scalar("loss", "train", value=weight**2, iteration=step)
    logger.report_scalar(title="grad_norm", series="train", value=abs(gradient), iteration=step)
task.close()
stored: outcome.Stored = {}
folder = Path(task.get_offline_mode_folder())
lines = (folder / "metrics.jsonl").read_text().splitlines() if folder.is_dir() else []
if not lines:
    with zipfile.ZipFile(folder.with_suffix(".zip")) as archive:
        lines = archive.read("metrics.jsonl").decode().splitlines()
for line in lines:
    for event in json.loads(line):
        if event.get("type") == "training_stats_scalar":
            name = f"{event['metric']}/{event['variant']}"
            stored.setdefault(name, {})[event["iter"]] = float(event["value"])
outcome.write(sys.argv[1], stored, outcome.digest())
