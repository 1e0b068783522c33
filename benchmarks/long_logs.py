"""Long logs to be read, made by seed: what trainers print, between what everything else prints.

The spellings are those of TRL's ProgressCallback, verl's LocalLogger, Megatron's training_log,
DeepSpeed-Chat's main.py and Stable-Baselines3's HumanOutputFormat; the numbers mean nothing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

STEPS = 1_000_000_000
_WORDS = """
    the a of and to in is that it we for so then since let total number price apples cost each
    per hour minutes distance speed answer therefore value sum equation solve first next finally
    multiply divide add subtract because means gives result triangle area length width store sold
""".split()  # noqa: SIM905 - prose
_TRL = (
    "loss", "grad_norm", "learning_rate", "num_tokens", "completions/mean_length",
    "completions/min_length", "completions/max_length", "completions/clipped_ratio",
    "rewards/accuracy_reward/mean", "rewards/accuracy_reward/std", "rewards/format_reward/mean",
    "rewards/format_reward/std", "reward", "reward_std", "frac_reward_zero_std", "kl", "entropy",
    "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean",
)  # fmt: skip
_VERL = tuple(
    f"{group}/{name}"
    for group, names in {
        "actor": "entropy pg_loss kl_loss kl_coef pg_clipfrac ppo_kl grad_norm lr",
        "critic": "score/mean score/max score/min rewards/mean rewards/max rewards/min "
        "advantages/mean advantages/max advantages/min returns/mean returns/max returns/min",
        "response_length": "mean max min clip_ratio",
        "prompt_length": "mean max min clip_ratio",
        "timing_s": "gen reward old_log_prob ref adv update_actor step stop_profile",
        "timing_per_token_ms": "gen ref adv update_actor",
        "perf": "mfu/actor max_memory_allocated_gb cpu_memory_used_gb total_num_tokens throughput",
        "training": "global_step epoch",
    }.items()
    for name in names.split()
)


def prose(numbers: random.Random) -> str:
    """A line of a completion, with a number here and there."""
    words = numbers.choices(_WORDS, k=numbers.randint(6, 22))
    if numbers.random() < 0.4:
        words[2] = (
            f"{numbers.randint(1, 99)} * {numbers.randint(1, 99)} = {numbers.randint(1, 999)}"
        )
    return " ".join(words).capitalize() + "."


def chatter(numbers: random.Random, step: int) -> str:
    """A line of the engines around the trainer."""
    clock = f"06-{step // 86400 % 28 + 1:02d} {step // 3600 % 24:02d}:{step // 60 % 60:02d}:09"
    return numbers.choice(
        (
            f"INFO {clock} [loggers.py:118] Engine 000: Avg prompt throughput: "
            f"{numbers.random() * 900:.1f} tokens/s, Running: {numbers.randint(0, 64)} reqs, "
            f"GPU KV cache usage: {numbers.random() * 40:.1f}%",
            f"(WorkerDict pid={numbers.randint(1000, 9999)}) INFO {clock} [block_pool.py:321] "
            "Successfully reset prefix cache",
            f"[2025-{clock},{numbers.randint(0, 999):03d}] [INFO] [worker.py:{step % 400}] "
            "received a batch, sending it on",
            "/usr/lib/python3.11/site-packages/torch/utils/checkpoint.py:87: UserWarning: None of "
            "the inputs have requires_grad=True. Gradients will be None",
        )
    )


def trl(step: int, numbers: random.Random) -> Iterator[str]:
    """Chatter and completions, and the dict of the step."""
    for _ in range(6):
        yield chatter(numbers, step)
    for _ in range(3):
        yield "-" * 20 + f" Question {numbers.randint(1, 7000)}:"
        for _ in range(6):
            yield prose(numbers)
        yield ""
    values = {name: round(numbers.random(), 6) for name in _TRL}
    yield str({**values, "epoch": round(step / 1000, 2)})
    yield f"{step % 100:3d}%|{'█' * 8:10}| {step}/{STEPS} [10:07<1:20:11, 2.43s/it]"


def solutions(step: int, numbers: random.Random) -> Iterator[str]:
    """Completions full of steps, sums and answers, and the dict of the step."""
    count = numbers.randint
    for _ in range(4):
        for place in range(1, 6):
            words = " ".join(numbers.choices(_WORDS, k=count(5, 14)))
            yield numbers.choice(
                (
                    f"Step {place}: {words} {count(1, 99)} * {count(1, 9)} = {count(1, 999)}.",
                    f"{place}. {words.capitalize()}: {count(1, 99)}",
                    f"So the {words} is {count(1, 500)} dollars.",
                    f"**{words.title()}** = {count(1, 99)} + {count(1, 99)}",
                    f"\\boxed{{{count(1, 99)}}}",
                    f"<answer>{count(1, 99)}</answer> {words}",
                )
            )
    yield from list(trl(step, numbers))[-2:]


def trl_dicts(step: int, numbers: random.Random) -> Iterator[str]:
    """Nothing but dicts."""
    values = {name: numbers.random() for name in _TRL}
    yield str({**values, "epoch": round(step / 1000, 2)})


def verl(step: int, numbers: random.Random) -> Iterator[str]:
    """Long lines of pairs behind the name of their worker."""
    pairs = " - ".join(f"{name}:{numbers.random()!r}" for name in _VERL)
    yield f"(TaskRunner pid=4127) step:{step} - {pairs}"
    yield "(TaskRunner pid=4127) ("
    yield chatter(numbers, step)
    yield f"Training Progress: {step % 100:3d}%|███   | {step}/{STEPS} [3:12:07<9:20:11, 61.43s/it]"


def megatron(step: int, numbers: random.Random) -> Iterator[str]:
    """Between bars."""
    yield (
        f" [2025-06-0{step % 9 + 1} 11:02:{step % 60:02d}] iteration {step:8d}/{STEPS:8d} | "
        f"consumed samples: {step * 32:12d} | elapsed time per iteration (ms): "
        f"{3000 + numbers.random() * 900:.1f} | throughput per GPU (TFLOP/s/GPU): 30.2 | "
        f"learning rate: {numbers.random() / 1e4:.6E} | global batch size:    32 | "
        f"lm loss: {numbers.random() * 9:.6E} | loss scale: 1.0 | "
        f"grad norm: {numbers.random() * 3:.3f} | number of skipped iterations:   0 | "
        "number of nan iterations:   0 |"
    )
    if step % 5 == 0:
        yield chatter(numbers, step)


def deepspeed_chat(step: int, numbers: random.Random) -> Iterator[str]:
    """One line per measurement, between rules."""
    r = numbers.random
    yield (
        f"Epoch: 0 | Step: {step} | PPO Epoch: 1 | Actor Loss: {r() - 0.5} | "
        f"Critic Loss: {r()} | Unsupervised Loss: 0.0"
    )
    yield (
        f"End-to-End => Latency: {r() * 9:.2f}s, TFLOPs: {r() * 50:.2f}, "
        f"Samples/sec: {r() * 9:.2f}, Time/seq {r():.2f}s, Batch Size: 32"
    )
    yield f"average reward score: {r()}"
    yield "-" * 85
    yield (
        f"|E2E latency={r() * 9:.2f}s |Gather latency=0.00s (0.00%) |Generate time={r() * 3:.2f}s "
        f"(34.55%) |Training time={r() * 3:.2f}s (55.10%) |Others={r():.2f} (10.35%)"
        f"|CurSamplesPerSec={r() * 9:.2f} |AvgSamplesPerSec={r() * 9:.2f}"
    )


def tables(step: int, numbers: random.Random) -> Iterator[str]:
    """Boxes of names with one number each."""
    rule = "-" * 44
    rows = {
        "rollout/": ("ep_len_mean", "ep_rew_mean"),
        "train/": ("approx_kl", "clip_fraction", "entropy_loss", "explained_variance", "loss"),
    }
    yield rule
    for section, names in rows.items():
        yield f"| {section:<24} |             |"
        for name in names:
            yield f"|    {name:<21} | {numbers.random():<11.6f} |"
    yield "| time/                    |             |"
    yield f"|    total_timesteps       | {step * 2048:<11} |"
    yield rule


def jsonl(step: int, numbers: random.Random) -> Iterator[str]:
    """Flat rows of numbers."""
    yield json.dumps({"step": step, **{name: numbers.random() for name in _TRL}})


def jsonl_mixed(step: int, numbers: random.Random) -> Iterator[str]:
    """Rows with a text and a time stamp, and every tenth an evaluation."""
    row = {"step": step, "time": f"2025-06-01T11:02:{step % 60:02d}", "phase": "train"}
    names = ("eval_loss", "eval_reward") if step % 10 == 9 else _TRL
    yield json.dumps({**row, **{name: numbers.random() for name in names}})


def jsonl_nested(step: int, numbers: random.Random) -> Iterator[str]:
    """Groups of numbers in one row."""
    groups = {name: {key: numbers.random() for key in _TRL[:7]} for name in ("a", "b", "c")}
    yield json.dumps({"step": step, **groups})


def jsonl_nan(step: int, numbers: random.Random) -> Iterator[str]:
    """Rows with the literal NaN in some of them, as Python's json writes it."""
    row = {name: numbers.random() for name in _TRL}
    yield json.dumps({"step": step, **row, "kl": float("nan") if step % 50 == 3 else 0.25})


def jsonl_verl(step: int, numbers: random.Random) -> Iterator[str]:
    """verl's FileLogger."""
    yield json.dumps({"step": step, "data": {name: numbers.random() for name in _VERL}})


def csv(step: int, numbers: random.Random) -> Iterator[str]:
    """A table of a few columns."""
    yield from _table(_TRL[:4], step, numbers)


def csv_wide(step: int, numbers: random.Random) -> Iterator[str]:
    """A table of many columns."""
    yield from _table(_TRL, step, numbers)


def _table(names: Sequence[str], step: int, numbers: random.Random) -> Iterator[str]:
    if step == 1:
        yield ",".join(("step", *names))
    yield ",".join((str(step), *(f"{numbers.random():.6f}" for _ in names)))


CONSOLE: dict[str, Callable[[int, random.Random], Iterator[str]]] = {
    kind.__name__: kind
    for kind in (trl, solutions, trl_dicts, verl, megatron, deepspeed_chat, tables)
}
JSONL: dict[str, Callable[[int, random.Random], Iterator[str]]] = {
    kind.__name__: kind for kind in (jsonl, jsonl_mixed, jsonl_nested, jsonl_nan, jsonl_verl)
}
CSV: dict[str, Callable[[int, random.Random], Iterator[str]]] = {
    kind.__name__: kind for kind in (csv, csv_wide)
}
_WHOLE = 4 * 1024 * 1024


def write(path: Path, kind: Callable[[int, random.Random], Iterator[str]], size: int) -> Path:
    """A log of at least so many bytes."""
    numbers = random.Random(0)
    step, written = 0, 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            lines: list[str] = []
            held = 0
            while held < min(_WHOLE, size - written):
                step += 1
                for line in kind(step, numbers):
                    lines.append(line)
                    held += len(line) + 1
            file.write("\n".join(lines) + "\n")
            written += held
    return path
