"""Ray Train on a local Ray: two workers that report."""

import json
import sys
from pathlib import Path
from typing import Any

import outcome
import ray
import ray.train
from ray.train.torch import TorchTrainer


def train(config: dict[str, Any]) -> None:
    """Gradient descent of one number; the first worker keeps what it reports."""
    import torch

    outcome.seed(6)
    rank = ray.train.get_context().get_world_rank()
    layer, rows = torch.nn.Linear(4, 1), []
    model = ray.train.torch.prepare_model(layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(8):
        inputs = torch.randn(8, 4)
        loss = ((model(inputs).squeeze(-1) - inputs.sum(dim=1)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows.append({"loss": loss.item(), "lr": 0.05})
        ray.train.report(rows[-1])
    if rank == 0:
        state = outcome.digest(dict(layer.state_dict()))
        Path(config["kept"]).write_text(json.dumps({"rows": rows, "state": state}))


if __name__ == "__main__":
    folder = Path.cwd()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    kept = folder / "kept.json"
    trainer = TorchTrainer(
        train,
        train_loop_config={"kept": str(kept)},
        scaling_config=ray.train.ScalingConfig(num_workers=2, use_gpu=False),
        run_config=ray.train.RunConfig(name="one", storage_path=str(folder / "results")),
    )
    trainer.fit()
    ray.shutdown()
    content = json.loads(kept.read_text())
    rows = [{"step": step, **row} for step, row in enumerate(content["rows"], start=1)]
    outcome.write(sys.argv[1], outcome.by_name(rows, "step"), content["state"])
