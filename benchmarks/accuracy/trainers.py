"""The trainers of the lab: TRL's GRPO, RLOO, DPO and SFT on the tiny model."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from trl import (
    DPOConfig,
    DPOTrainer,
    GRPOConfig,
    GRPOTrainer,
    RLOOConfig,
    RLOOTrainer,
    SFTConfig,
    SFTTrainer,
)

from benchmarks.accuracy.breaking import Fault
from benchmarks.accuracy.rewards import Task, no_letters
from benchmarks.accuracy.tiny import LONGEST, pairs, prompts, sequences, tiny_model, tokenizer


def _common(given: argparse.Namespace) -> dict[str, Any]:
    return {
        "output_dir": str(given.out),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "logging_steps": given.logging_steps,
        "max_steps": given.steps,
        "learning_rate": given.lr,
        "lr_scheduler_type": given.schedule,
        "max_grad_norm": given.clip,
        "optim": given.optimizer,
        "save_steps": given.stop or 100,
        "dataloader_pin_memory": False,
        "seed": given.seed,
        "disable_tqdm": True,
    }


def _online(given: argparse.Namespace) -> dict[str, Any]:
    return {
        **_common(given),
        "per_device_train_batch_size": 32,
        "num_generations": given.group,
        "max_completion_length": LONGEST,
        "beta": given.beta,
    }


def grpo(given: argparse.Namespace, fault: Fault) -> Any:
    return GRPOTrainer(
        model=tiny_model(given.out / "model", given.seed),
        reward_funcs=[Task(fault, given.group), no_letters],
        args=GRPOConfig(**_online(given), loss_type=given.loss_type),
        train_dataset=prompts(),
        processing_class=tokenizer(),
    )


def rloo(given: argparse.Namespace, fault: Fault) -> Any:
    return RLOOTrainer(
        model=tiny_model(given.out / "model", given.seed),
        reward_funcs=[Task(fault, given.group), no_letters],
        args=RLOOConfig(**_online(given)),
        train_dataset=prompts(),
        processing_class=tokenizer(),
    )


def dpo(given: argparse.Namespace, fault: Fault) -> Any:
    size = 16
    return DPOTrainer(
        model=tiny_model(given.out / "model", given.seed),
        args=DPOConfig(**_common(given), per_device_train_batch_size=size, beta=0.1),
        train_dataset=pairs(size * given.steps, given.seed),
        processing_class=tokenizer(),
    )


def sft(given: argparse.Namespace, fault: Fault) -> Any:
    size, every = 16, given.evaluate
    rows = sequences(size * (given.steps + 4), given.seed)
    held_out = {"eval_strategy": "steps", "eval_steps": every} if every else {}
    return SFTTrainer(
        model=tiny_model(given.out / "model", given.seed),
        args=SFTConfig(**_common(given), per_device_train_batch_size=size, **held_out),
        train_dataset=rows.select(range(4 * size, len(rows))),
        eval_dataset=rows.select(range(4 * size)) if every else None,
        processing_class=tokenizer(),
    )


BUILT: dict[str, Callable[[argparse.Namespace, Fault], Any]] = {
    "grpo": grpo,
    "rloo": rloo,
    "dpo": dpo,
    "sft": sft,
}
