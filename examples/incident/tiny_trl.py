"""The same idea on a tiny TRL GRPOTrainer: `python examples/incident/run.py --trl [--guarded]`.

A smaller claim than the training in NumPy: a random model of 30,000 weights learns nothing in
a minute on a CPU. What can be seen is where its updates come from. From step `HARD_FROM` to
`HARD_TO` the task pays nothing; unguarded, the format reward goes on moving the weights, guarded
nothing does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

STEPS, HARD_FROM, HARD_TO = 40, 11, 31
EASY, HARD = ("1+1=", "2+3=", "4-2=", "3+3="), ("9/7=", "8/7=", "6/7=", "5/7=")
TOKENS = ("<pad>", "<eos>", "<unk>", *"0123456789+-/= ?")
GROUP_SIZE, GROUPS = 4, 2


def digit(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
    """1 for a digit in the answer to an easy prompt: hard ones cannot be answered."""
    pairs = zip(prompts, completions, strict=True)
    return [float(p in EASY and any(c.isdigit() for c in text[:2])) for p, text in pairs]


def box(completions: list[str], **_: Any) -> list[float]:
    """0.1 for a box, whatever is in it."""
    return [0.1 if "?" in text else 0.0 for text in completions]


def main(run_dir: Path, *, guarded: bool) -> None:
    """Train, record, and show what moved the weights after the arrival."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "true"}
    import torch

    from examples.incident.run import scanned
    from rlprobe.integrations.guarding import guard
    from rlprobe.integrations.trl import attach

    torch.manual_seed(0)
    trainer = _trainer(run_dir)
    attach(trainer, run_dir)
    if guarded:
        print(guard(trainer, task="digit"))
    trainer.train()
    norms = [row["grad_norm"] for row in trainer.state.log_history if "grad_norm" in row]
    print(scanned(str(run_dir)))
    hard = norms[HARD_FROM - 1 : HARD_TO - 1]
    print(f"largest gradient norm while the prompts are hard: {max(hard):.3g}")


def _trainer(folder: Path) -> Any:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    steps = [1 + number // GROUPS for number in range(STEPS * GROUPS)]
    sets = [HARD if HARD_FROM <= step < HARD_TO else EASY for step in steps]
    prompts = [chosen[number % 4] for number, chosen in enumerate(sets)]
    settings = GRPOConfig(
        output_dir=str(folder / "out"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        logging_steps=1,
        per_device_train_batch_size=GROUPS * GROUP_SIZE,
        num_generations=GROUP_SIZE,
        max_completion_length=12,
        max_steps=STEPS,
        learning_rate=1e-3,
        beta=0.0,
        shuffle_dataset=False,  # the curriculum
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    return GRPOTrainer(
        model=_model(),
        reward_funcs=[digit, box],  # the task first: what comes after it can be gated by it
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=_tokenizer(),
    )


def _model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
    )
    return LlamaForCausalLM(config)


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: number for number, token in enumerate(TOKENS)}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    plain.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
    )
