"""The trainers of TRL on a tiny model: trl_trainers.py OUT grpo|rloo|dpo|sft|reward."""

import sys
from pathlib import Path
from typing import Any

import outcome
import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForSequenceClassification

sys.path.append(str(Path(__file__).parents[1]))
from tiny_grpo import TOKENS, fresh_model, tokenizer

out, kind = sys.argv[1:]
outcome.seed(2)
PROMPTS = ["1+1=", "2+3=", "4-2=", "3+3="] * 4
COMMON: dict[str, Any] = {
    "output_dir": "out",
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": "none",
    "logging_steps": 1,
    "max_steps": 5,
    "per_device_train_batch_size": 4,
    "learning_rate": 1e-3,
    "save_strategy": "no",
    "dataloader_pin_memory": False,
    "disable_tqdm": True,
}


def digits(completions: list[str], **_: Any) -> list[float]:
    return [sum(c.isdigit() for c in text) / max(1, len(text)) for text in completions]


def pairs() -> Dataset:
    chosen, rejected = ["2", "5", "2", "6"] * 4, ["abc", "bad", "fed", "ace"] * 4
    return Dataset.from_dict({"prompt": PROMPTS, "chosen": chosen, "rejected": rejected})


def online() -> Any:
    import trl

    config, trainer = {
        "grpo": (trl.GRPOConfig, trl.GRPOTrainer),
        "rloo": (trl.RLOOConfig, trl.RLOOTrainer),
    }[kind]
    return trainer(
        model=fresh_model(Path("model"), 0),
        reward_funcs=[digits],
        args=config(num_generations=4, max_completion_length=8, beta=0.04, **COMMON),
        train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
        processing_class=tokenizer(),
    )


def preference() -> Any:
    from trl import DPOConfig, DPOTrainer

    return DPOTrainer(
        model=fresh_model(Path("model"), 0),
        ref_model=fresh_model(Path("model"), 0),
        args=DPOConfig(**COMMON),
        train_dataset=pairs(),
        processing_class=tokenizer(),
    )


def supervised() -> Any:
    from trl import SFTConfig, SFTTrainer

    return SFTTrainer(
        model=fresh_model(Path("model"), 0),
        args=SFTConfig(**COMMON),
        train_dataset=Dataset.from_dict({"text": [p + "2" for p in PROMPTS]}),
        processing_class=tokenizer(),
    )


def reward() -> Any:
    from trl import RewardConfig, RewardTrainer

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=3,
        num_labels=1,
    )
    return RewardTrainer(
        model=LlamaForSequenceClassification(config),
        args=RewardConfig(**COMMON),
        train_dataset=pairs(),
        processing_class=tokenizer(),
    )


MAKE = {"grpo": online, "rloo": online, "dpo": preference, "sft": supervised, "reward": reward}
trainer = MAKE[kind]()
trainer.train()
history = [row for row in trainer.state.log_history if "train_runtime" not in row]
outcome.write(
    out, outcome.by_name(history, "step"), outcome.digest(dict(trainer.model.state_dict()))
)
