"""Lightning: lightning_fit.py OUT bar|csv."""

import csv
import sys
from pathlib import Path
from typing import Any

import lightning
import outcome
import torch
from lightning.pytorch.loggers import CSVLogger

out, kind = sys.argv[1:]
outcome.seed(2)


class Regression(lightning.LightningModule):
    """One layer, and what it logs kept beside."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.kept: list[dict[str, Any]] = []

    def training_step(self, batch: Any, number: int) -> Any:
        loss = ((self.layer(batch[0]).squeeze(-1) - batch[1]) ** 2).mean()
        self.log("train/loss", loss, prog_bar=True)
        self.log_dict({"lr": 0.05, "weight": self.layer.weight.norm()})
        if self.global_step % self.trainer.log_every_n_steps == self.trainer.log_every_n_steps - 1:
            row = {"train/loss": loss, "lr": 0.05, "weight": self.layer.weight.norm()}
            values = {name: float(torch.as_tensor(value)) for name, value in row.items()}
            self.kept.append({"step": self.global_step, **values})
        return loss

    def validation_step(self, batch: Any, number: int) -> None:
        loss = ((self.layer(batch[0]).squeeze(-1) - batch[1]) ** 2).mean()
        self.log("val/loss", loss)

    def on_validation_epoch_end(self) -> None:
        if not self.trainer.sanity_checking:
            loss = self.trainer.callback_metrics["val/loss"]
            self.kept.append({"step": self.global_step - 1, "val/loss": float(loss)})

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.05)


inputs = torch.randn(64, 4)
data = torch.utils.data.TensorDataset(inputs, inputs.sum(dim=1))
logger = CSVLogger("logs") if kind == "csv" else False
trainer = lightning.Trainer(
    max_epochs=3,
    logger=logger,
    log_every_n_steps=2,
    accelerator="cpu",
    enable_checkpointing=False,
    enable_model_summary=False,
)
model = Regression()
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
trainer.fit(model, loader, torch.utils.data.DataLoader(data, batch_size=32))
if kind == "csv":
    with Path(trainer.logger.log_dir, "metrics.csv").open() as file:
        read = [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
else:
    read = model.kept
stored = outcome.by_name(read, "step")
stored.pop("epoch", None)
outcome.write(out, stored, outcome.digest(dict(model.state_dict())))
