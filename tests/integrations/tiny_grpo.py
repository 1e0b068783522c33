"""An ordinary GRPO training script, small enough for a CPU. It knows nothing of rlprobe.

Whoever runs it sets HF_HUB_OFFLINE and its like: nothing here needs the network.

python tiny_grpo.py OUT --steps 200 --fault nan_weight@150 --resume OUT/checkpoint-100
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

TOKENS = ["<pad>", "<eos>", "<unk>", "<bos>", *"0123456789+-= abcdef"]


def tokenizer() -> Any:
    plain = Tokenizer(models.WordLevel({t: i for i, t in enumerate(TOKENS)}, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    plain.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        bos_token="<bos>",
        padding_side="left",
    )


def fresh_model(folder: Path, seed: int) -> Any:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=256,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=3,
        tie_word_embeddings=False,
    )
    if not (folder / "config.json").exists():
        LlamaForCausalLM(config).save_pretrained(folder)
        tokenizer().save_pretrained(folder)
    return LlamaForCausalLM.from_pretrained(folder)


class Faults(TrainerCallback):  # type: ignore[misc]
    """Breaks the run at a step, as `kind@step` says."""

    def __init__(self, fault: str) -> None:
        kind, _, step = fault.partition("@")
        self.kind, self.at = kind, int(step or 0)
        self.now = 0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.now = state.global_step + 1

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.kind == "grad_overflow":
            kwargs["model"].lm_head.weight.register_hook(self._overflow)

    def _overflow(self, grad: torch.Tensor) -> torch.Tensor:
        return grad * 1e30 * 1e30 if self.now == self.at else grad

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.kind == "nan_weight" and state.global_step == self.at:
            with torch.no_grad():
                kwargs["model"].lm_head.weight[3, 5] = float("nan")


def reward_functions(faults: Faults) -> list[Any]:
    def digits(completions: list[str], **kwargs: Any) -> list[float]:
        if faults.kind == "dead_verifier" and faults.now >= faults.at:
            return [0.0 for _ in completions]
        return [sum(c.isdigit() for c in text) / max(1, len(text)) for text in completions]

    def form(prompts: list[str], **kwargs: Any) -> list[float | None]:
        return [None if prompt == "3+3=" else 0.1 for prompt in prompts]

    return [digits, form]


def trainer_of(model: Any, faults: Faults, *callbacks: Any, **settings: Any) -> Any:
    """A trainer on the CPU; `settings` are those of GRPOConfig."""
    args = GRPOConfig(
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        num_generations=4,
        max_completion_length=12,
        learning_rate=1e-3,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        **settings,
    )
    prompts = ["1+1=", "2+3=", "4-2=", "3+3="] * 8
    return GRPOTrainer(
        model=model,
        reward_funcs=reward_functions(faults),
        args=args,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer(),
        callbacks=[faults, *callbacks],
    )


def state_hash(model: Any) -> str:
    """Weights and the state of every random number generator."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().contiguous().numpy().tobytes())
    digest.update(repr(random.getstate()).encode())
    digest.update(repr(np.random.get_state()).encode())
    digest.update(torch.get_rng_state().numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-steps", type=int, default=50)
    parser.add_argument("--logging-steps", type=int, default=1)
    parser.add_argument("--fault", default="none")
    parser.add_argument("--resume")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--beta", type=float, default=0.04)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rank = os.environ.get("RANK", "0")
    model = fresh_model(given.out / ("model" if rank == "0" else f"model-{rank}"), given.seed)
    faults = Faults(given.fault)
    trainer = trainer_of(
        model,
        faults,
        output_dir=str(given.out),
        logging_steps=given.logging_steps,
        per_device_train_batch_size=given.batch,
        gradient_accumulation_steps=given.accumulate,
        max_steps=given.steps,
        beta=given.beta,
        save_steps=given.save_steps,
        seed=given.seed,
    )
    trainer.train(resume_from_checkpoint=given.resume)
    trainer.save_state()
    (given.out / f"state-{rank}.txt").write_text(state_hash(trainer.model))


if __name__ == "__main__":
    main()
