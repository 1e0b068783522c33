"""A loop that logs to a local MLflow, one by one and many at once, also without steps."""

import random
import sys

import mlflow
import outcome

outcome.seed(3)
mlflow.set_tracking_uri("sqlite:///mlflow.db")
weight = 5.0
with mlflow.start_run() as run:
    mlflow.log_param("lr", 0.05)
    for step in range(30):
        gradient = 2 * weight + random.gauss(0, 0.1)
        weight -= 0.05 * gradient
        mlflow.log_metric("loss", weight**2, step=step)
        mlflow.log_metric("kl", weight / 10)
        mlflow.log_metrics({"grad_norm": abs(gradient), "weight": weight}, step=step)
client = mlflow.MlflowClient()
stored = {
    name: {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, name)}
    for name in ("loss", "grad_norm", "weight")
}
without = client.get_metric_history(run.info.run_id, "kl")  # MLflow has all at step 0
stored["kl"] = {place: metric.value for place, metric in enumerate(without)}
outcome.write(sys.argv[1], stored, outcome.digest())
