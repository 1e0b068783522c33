"""A tiny GRPO training that logs everywhere it can: python train_trl.py OUT SINK..."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from tests.integrations.tiny_grpo import fresh_model, tokenizer


def digits(completions: list[str], **kwargs: object) -> list[float]:
    return [sum(c.isdigit() for c in text) / max(1, len(text)) for text in completions]


def form(prompts: list[str], **kwargs: object) -> list[float | None]:
    return [None if prompt == "3+3=" else 0.1 for prompt in prompts]


REWARDS: list[Any] = [digits, form]


def main(out: str, *sinks: str) -> None:
    args = GRPOConfig(
        output_dir=out,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=list(sinks),
        project="project",
        run_name="run",
        logging_steps=1,
        log_completions=True,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=12,
        max_steps=12,
        beta=0.04,
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=fresh_model(Path(out) / "model", 0),
        reward_funcs=REWARDS,
        args=args,
        train_dataset=Dataset.from_dict({"prompt": ["1+1=", "2+3=", "4-2=", "3+3="] * 8}),
        processing_class=tokenizer(),
    )
    trainer.train()
    trainer.save_state()


main(*sys.argv[1:])
