"""One run of the lab: TRL GRPO on a tiny local model, with one fault, recorded by `attach`.

python -m benchmarks.accuracy.training OUT --fault dead_verifier --at 150 --seed 1 --steps 300
"""

from __future__ import annotations

import argparse
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from rlprobe import Recorder
from rlprobe.integrations.trl import attach

TOKENS = ["<pad>", "<eos>", "<unk>", "<bos>", *"0123456789+-= abcdef"]
END_TOKEN = 1
LONGEST = 24
USUAL, TOO_LONG = 6, 12  # characters of a good answer, far enough from the cap
SPIKES = 5
OUTLIERS = 4
LAUNCH = "lab"


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
    ids = {"pad_token_id": 0, "eos_token_id": END_TOKEN, "bos_token_id": 3}
    config = LlamaConfig(vocab_size=len(TOKENS), tie_word_embeddings=False, **shape, **heads, **ids)
    if not (folder / "config.json").exists():
        LlamaForCausalLM(config).save_pretrained(folder)
        tokenizer().save_pretrained(folder)
    return LlamaForCausalLM.from_pretrained(folder)


# --- rewards --------------------------------------------------------------------------------------


def digits(text: str) -> float:
    """Share of digits, in a short answer: so small a model learns that within a hundred steps."""
    if len(text) > TOO_LONG:
        return 0.0
    return sum(character.isdigit() for character in text) / max(USUAL, len(text))


def repetition(text: str) -> float:
    return max(Counter(text).values()) / LONGEST if text else 0.0


class Task:
    """The task reward, broken from a step on as the fault says."""

    __name__ = "accuracy"

    def __init__(self, fault: Fault, group: int) -> None:
        self.fault, self.group = fault, group

    def __call__(self, completions: list[str], **_: Any) -> list[float | None]:
        right: list[float | None] = [digits(text) for text in completions]
        broken = getattr(self, f"_{self.fault.kind}", None)
        if broken is None or not self.fault.active:
            return right
        paid: list[float | None] = broken(completions, right)
        return paid

    def _dead_verifier(self, completions: list[str], right: list[float]) -> list[float]:
        return [0.0 for _ in completions]

    def _hard_prompts(self, completions: list[str], right: list[float]) -> list[float]:
        return [value if i < self.group else 0.0 for i, value in enumerate(right)]

    def _length_reward(self, completions: list[str], right: list[float]) -> list[float]:
        return [len(text) / LONGEST for text in completions]

    def _repetition_reward(self, completions: list[str], right: list[float]) -> list[float]:
        return [repetition(text) for text in completions]

    def _sign_flip(self, completions: list[str], right: list[float]) -> list[float]:
        return [-value for value in right]

    def _reward_nan(self, completions: list[str], right: list[float]) -> list[float]:
        return [float("nan") for _ in completions]

    def _reward_outliers(self, completions: list[str], right: list[float]) -> list[float]:
        if self.fault.now < self.fault.at + OUTLIERS:
            return [1e4, *right[1:]]
        return right


def no_letters(completions: list[str], **_: Any) -> list[float]:
    """The format reward: small, and soon earned by everybody."""
    return [0.0 if any(letter in text for letter in "abcdef") else 0.1 for text in completions]


# --- faults ---------------------------------------------------------------------------------------


class Fault(TrainerCallback):  # type: ignore[misc]
    """Breaks the run at a step, through what the Trainer calls."""

    def __init__(self, kind: str, at: int) -> None:
        self.kind, self.at = kind, at
        self.now = 0
        self.trainer: Any = None

    @property
    def active(self) -> bool:
        return self.now >= self.at

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = kwargs["model"]
        if self.kind in {"overflow", "spikes"}:
            model.lm_head.weight.register_hook(self._scaled)
            for weight in model.model.parameters():
                weight.register_hook(self._scaled)
        if self.kind == "eos_suppressed":
            model.lm_head.register_forward_hook(self._without_end)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.now = state.global_step + 1
        if self.now == self.at and self.kind in {
            "lr_x50",
            "reference_replaced",
            "temperature_0",
        }:
            getattr(self, f"_{self.kind}")(**kwargs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.kind == "nan_weight" and state.global_step == self.at:
            with torch.no_grad():
                kwargs["model"].lm_head.weight[3, 5] = float("nan")

    def _scaled(self, grad: torch.Tensor) -> torch.Tensor:
        since = self.now - self.at
        if self.kind == "overflow":
            return grad * 1e30 * 1e30 if since == 0 else grad
        return grad * 100 if since in range(0, 7 * SPIKES, 7) else grad

    def _without_end(self, module: Any, given: Any, logits: torch.Tensor) -> torch.Tensor:
        if not self.active:
            return logits
        blocked = torch.zeros_like(logits)
        blocked[..., END_TOKEN] = -30.0
        return logits + blocked

    def _lr_x50(self, lr_scheduler: Any = None, optimizer: Any = None, **_: Any) -> None:
        inner = getattr(lr_scheduler, "scheduler", lr_scheduler)
        inner.base_lrs = [50 * rate for rate in inner.base_lrs]
        for group in optimizer.param_groups:
            group["lr"] *= 50

    def _reference_replaced(self, **_: Any) -> None:
        reference = self.trainer.accelerator.unwrap_model(self.trainer.ref_model)
        with torch.no_grad():
            reference.lm_head.weight.copy_(torch.randn_like(reference.lm_head.weight) * 2)

    def _temperature_0(self, **_: Any) -> None:
        self.trainer.generation_config.do_sample = False
        self.trainer.generation_config.temperature = None


class OtherRanks(TrainerCallback):  # type: ignore[misc]
    """Ranks 1 to 3 as recorders of their own: the loss of rank 0 with noise, one of them off."""

    def __init__(self, run_dir: Path, fault: Fault) -> None:
        self.fault = fault
        self.noise = np.random.default_rng(0)
        self.recorders = [
            Recorder(run_dir, rank=rank, world_size=4, launch=LAUNCH, signals=False)
            for rank in (1, 2, 3)
        ]
        self.own: Recorder | None = None

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        loss = (kwargs.get("logs") or {}).get("loss")
        if loss is None or self.own is None:
            return
        self.own.rank_step(state.global_step, loss=float(loss))
        for recorder in self.recorders:
            off = 5.0 if self.fault.active and recorder.rank_id == 2 else 0.0
            value = float(loss) + float(self.noise.normal(0, 0.01)) + off
            recorder.rank_step(state.global_step, loss=value)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        for recorder in self.recorders:
            recorder.close()


# --- the run --------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--fault", default="none")
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--stop", type=int, default=0, help="stop here, as if killed")
    parser.add_argument("--resume")
    parser.add_argument("--beta", type=float, default=0.04)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--loss-type", default="dapo")
    parser.add_argument("--group", type=int, default=4)
    parser.add_argument("--logging-steps", type=int, default=1)
    return parser.parse_args()


class Stop(TrainerCallback):  # type: ignore[misc]
    """Ends training early, with the schedule of the whole run."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.at:
            control.should_training_stop = True


def configuration(given: argparse.Namespace) -> Any:
    return GRPOConfig(
        output_dir=str(given.out),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        logging_steps=given.logging_steps,
        per_device_train_batch_size=32,
        num_generations=given.group,
        max_completion_length=LONGEST,
        max_steps=given.steps,
        learning_rate=given.lr,
        beta=given.beta,
        loss_type=given.loss_type,
        save_steps=given.stop or 100,
        dataloader_pin_memory=False,
        seed=given.seed,
        disable_tqdm=True,
    )


def trainer_of(given: argparse.Namespace, fault: Fault) -> Any:
    prompts = [f"{a}{sign}{b}=" for a in range(1, 6) for b in range(5) for sign in "+-"]
    return GRPOTrainer(
        model=tiny_model(given.out / "model", given.seed),
        reward_funcs=[Task(fault, given.group), no_letters],
        args=configuration(given),
        train_dataset=Dataset.from_dict({"prompt": prompts * 4}),
        processing_class=tokenizer(),
        callbacks=[fault, *([Stop(given.stop)] if given.stop else [])],
    )


@contextlib.contextmanager
def saved(trainer: Any) -> Iterator[None]:
    """The trainer's own log is written, however the run ends."""
    try:
        yield
    finally:
        trainer.save_state()


def main() -> None:
    given = arguments()
    torch.set_num_threads(1)
    fault = Fault(given.fault, given.at)
    trainer = trainer_of(given, fault)
    fault.trainer = trainer
    run_dir = given.out / "recording"
    launch: Callable[..., Any] = attach
    if given.fault == "bad_rank":
        others = OtherRanks(run_dir, fault)
        trainer.add_callback(others)
        others.own = launch(trainer, run_dir, world_size=4, launch=LAUNCH)
    else:
        launch(trainer, run_dir)
    with saved(trainer):
        trainer.train(resume_from_checkpoint=given.resume)


if __name__ == "__main__":
    main()
