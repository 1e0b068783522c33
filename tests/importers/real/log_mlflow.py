"""Logs two MLflow runs, one of which fails: python log_mlflow.py STORE_URI."""

from __future__ import annotations

import math
import sys

import mlflow

VALUES = [0.1, math.nan, math.inf, -math.inf, 1 / 3]


def run(name: str) -> None:
    with mlflow.start_run(run_name=name):
        mlflow.log_params({"beta": 0.04, "text": "x"})
        for step, value in enumerate(VALUES):
            mlflow.log_metrics({"train/loss": value, "reward": step / 7}, step=5 * step)
        if name == "b":
            raise RuntimeError("on purpose")


mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("experiment")
run("a")
try:
    run("b")
except RuntimeError as error:
    print(error)
