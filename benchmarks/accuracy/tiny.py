"""The tiny model of the lab, its tokenizer, and the data it learns from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

DIGITS, LETTERS = "0123456789", "abcdef"
TOKENS = ["<pad>", "<eos>", "<unk>", "<bos>", *DIGITS, *"+-= ", *LETTERS]
END_TOKEN, START_TOKEN, FIRST_DIGIT = 1, 3, 4
LONGEST = 24
PROMPTS = [f"{a}{sign}{b}=" for a in range(1, 6) for b in range(5) for sign in "+-"]


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


def tiny_model(folder: Path, seed: int) -> Any:
    """Saved and loaded again: a reference model is reloaded by its path."""
    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 256}
    ids = {"pad_token_id": 0, "eos_token_id": END_TOKEN, "bos_token_id": START_TOKEN}
    config = LlamaConfig(vocab_size=len(TOKENS), tie_word_embeddings=False, **shape, **heads, **ids)
    if not (folder / "config.json").exists():
        LlamaForCausalLM(config).save_pretrained(folder)
        tokenizer().save_pretrained(folder)
    return LlamaForCausalLM.from_pretrained(folder)


# --- data -----------------------------------------------------------------------------------------


def prompts() -> Dataset:
    return Dataset.from_dict({"prompt": PROMPTS * 4})


def pairs(rows: int, seed: int, wrong: float = 0.05) -> Dataset:
    """Digits are better than letters, but for some labels that are wrong."""
    chance = np.random.default_rng(seed)

    def answer(letters: float) -> str:
        return "".join(
            chance.choice(list(LETTERS if chance.random() < letters else DIGITS)) for _ in range(6)
        )

    def pair() -> tuple[str, str]:
        better, worse = answer(0.2), answer(0.8)
        return (worse, better) if chance.random() < wrong else (better, worse)

    made = [pair() for _ in range(rows)]
    asked = chance.choice(PROMPTS, rows).tolist()
    chosen, rejected = [better for better, _ in made], [worse for _, worse in made]
    return Dataset.from_dict({"prompt": asked, "chosen": chosen, "rejected": rejected})


def sequences(rows: int, seed: int) -> Dataset:
    """Walks of a random length over ten digits, each with three successors: 0.8 nats to a token."""
    chance = np.random.default_rng(seed)
    after = np.array([chance.permutation(10)[:3] for _ in range(10)])

    def walk() -> Iterator[int]:
        now = int(chance.integers(10))
        for _ in range(int(chance.integers(12, LONGEST))):
            yield FIRST_DIGIT + now
            now = int(chance.choice(after[now], p=[0.7, 0.2, 0.1]))

    return Dataset.from_dict({"input_ids": [[*walk(), END_TOKEN] for _ in range(rows)]})
