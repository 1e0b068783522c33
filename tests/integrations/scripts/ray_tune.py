"""Ray Tune on a local Ray: two trials that report."""

import json
import random
import sys
from pathlib import Path
from typing import Any

import outcome
import ray
from ray import tune


def train(config: dict[str, Any]) -> None:
    """Gradient descent of one number."""
    outcome.seed(3)
    weight = 5.0
    for _ in range(12):
        gradient = 2 * weight + random.gauss(0, 0.1)
        weight -= config["lr"] * gradient
        state = outcome.digest()
        tune.report({"loss": weight**2, "grad_norm": abs(gradient), "state": state})


if __name__ == "__main__":
    folder = Path.cwd()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    tuner = tune.Tuner(
        train,
        param_space={"lr": tune.grid_search([0.05, 0.1])},
        run_config=tune.RunConfig(name="one", storage_path=str(folder / "results"), verbose=0),
    )
    tuner.fit()
    ray.shutdown()
    stored, states = [], []
    for path in sorted((folder / "results").rglob("result.json")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        kept = [
            {"step": row["training_iteration"], "loss": row["loss"], "grad_norm": row["grad_norm"]}
            for row in rows
        ]
        stored.append(outcome.by_name(kept, "step"))
        states.append(rows[-1]["state"])
    outcome.write(sys.argv[1], stored, " ".join(states))
