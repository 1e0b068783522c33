"""A plain Hugging Face Trainer, with evaluations."""

import sys
from typing import Any

import outcome
import torch
import transformers

outcome.seed(2)


class Regression(torch.nn.Module):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        guess = self.layer(x).squeeze(-1)
        return {"loss": ((guess - labels) ** 2).mean(), "logits": guess}


inputs = torch.randn(64, 4)
rows = [{"x": x, "labels": x.sum()} for x in inputs]
arguments = transformers.TrainingArguments(
    output_dir="out",
    max_steps=20,
    logging_steps=1,
    eval_strategy="steps",
    eval_steps=5,
    per_device_train_batch_size=4,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
    learning_rate=1e-2,
    disable_tqdm=True,
)
trainer = transformers.Trainer(
    model=Regression(), args=arguments, train_dataset=rows, eval_dataset=rows[:16]
)
trainer.train()
history = [row for row in trainer.state.log_history if "train_runtime" not in row]
outcome.write(
    sys.argv[1], outcome.by_name(history, "step"), outcome.digest(dict(trainer.model.state_dict()))
)
