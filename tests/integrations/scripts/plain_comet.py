"""A loop that logs to Comet, offline."""

import json
import random
import sys
import zipfile
from pathlib import Path

import comet_ml
import outcome

outcome.seed(3)
experiment = comet_ml.OfflineExperiment(
    project_name="plain",
    offline_directory="comet",
    log_code=False,
    log_git_metadata=False,
    log_env_details=False,
    auto_output_logging=False,
)
weight = 5.0
for step in range(30):
    gradient = 2 * weight + random.gauss(0, 0.1)
    weight -= 0.05 * gradient
    experiment.log_metric("loss", weight**2, step=step)
    experiment.log_metrics({"grad_norm": abs(gradient), "weight": weight}, step=step)
experiment.end()
(path,) = Path("comet").glob("*.zip")
stored: outcome.Stored = {}
with zipfile.ZipFile(path) as archive:
    for line in archive.read("messages.json").decode().splitlines():
        metric = json.loads(line).get("payload", {}).get("metric") or {}
        if metric.get("metricName") in {"loss", "grad_norm", "weight"}:
            series = stored.setdefault(metric["metricName"], {})
            series[metric["step"]] = float(metric["metricValue"])
outcome.write(sys.argv[1], stored, outcome.digest())
