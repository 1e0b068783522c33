"""Lines that tell something of a training, rather than of a step: where it begins, ends or fails.

Source: transformers `Trainer._inner_training_loop` and Stable-Baselines3 `BaseAlgorithm.learn`.
"""

from __future__ import annotations

import re

SUMMARY = re.compile(r"""\btrain_runtime['"]?\s*[:=]|\bTrainOutput\(global_step=""")
NUMBERS = re.compile(
    r"\b(?:(Num examples|Num Epochs|Total optimization steps|Total steps)\s*=\s*(?=\d)|"
    r"^(Logging to) )([^\s|]{1,300})"
)
BEGINS = re.compile(r"Running training\b")
HELD_OUT = re.compile(r"Running (?:[Ee]valuation|[Pp]rediction)")
RESUMED = re.compile(
    r"Continuing training from checkpoint|\b[Rr]esum(?:ed|ing)(?: training)? from\b"
)
FAILED = re.compile(r"Traceback \(most recent call last\)|Error[:(]|\bKilled\b|oom[-_]kill")
_ANY = re.compile(
    "|".join(sign.pattern for sign in (SUMMARY, NUMBERS, BEGINS, HELD_OUT, RESUMED, FAILED))
)


def tells(line: str) -> bool:
    """Whether a line says something of a training."""
    return (
        "Error" in line
        or "Traceback" in line
        or "Running " in line
        or "train_runtime" in line
        or "Num " in line
        or "Total " in line
        or "TrainOutput(" in line
        or "Continuing " in line
        or "esum" in line
        or "Logging to " in line
        or "Killed" in line
        or "oom" in line
    ) and _ANY.search(line) is not None
