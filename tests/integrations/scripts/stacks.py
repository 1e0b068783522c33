"""What verl, OpenRLHF and SkyRL log with, called as their trainers do: stacks.py OUT verl|….

The whole of these packages wants GPUs; their logging does not.
"""

import random
import sys
from types import SimpleNamespace
from typing import Any

import outcome

out, stack = sys.argv[1:]
outcome.seed(3)


def rows(names: tuple[str, ...]) -> list[dict[str, float]]:
    return [{name: random.gauss(0, 1) for name in names} for _ in range(20)]


def verl() -> outcome.Stored:
    from verl.utils.tracking import Tracking

    tracking = Tracking("plain", "one", default_backend=["console", "file"], config={})
    names = ("actor/pg_loss", "actor/ppo_kl", "critic/score/mean", "response_length/mean")
    kept = []
    for step, row in enumerate(rows(names), start=1):
        tracking.log(data=row, step=step)
        kept.append({"step": step, **row})
    tracking.finish()
    return outcome.by_name(kept, "step")


def openrlhf() -> outcome.Stored:
    from openrlhf.utils.logging_utils import TensorboardLogger

    settings = SimpleNamespace(tensorboard_dir="runs", wandb=SimpleNamespace(run_name="one"))
    logger = TensorboardLogger(SimpleNamespace(logger=settings))
    kept: list[dict[str, Any]] = []
    for step, row in enumerate(rows(("policy_loss", "reward", "kl", "response_length")), start=1):
        logger.log_train(step, {**row, "generated_samples": ["a text", 0.5]})
        kept.append({"step": step, **{f"train/{name}": value for name, value in row.items()}})
        if step % 5 == 0:
            logger.log_eval(step, {"acc": row["reward"]})
            kept.append({"step": step, "eval/acc": row["reward"]})
    logger.close()
    return outcome.by_name(kept, "step")


def skyrl() -> outcome.Stored:
    from skyrl.train.utils.tracking import Tracking

    tracking = Tracking("plain", "one", backend="console")
    names = ("policy/policy_loss", "policy/policy_kl", "reward/avg_raw_reward")
    kept = []
    for step, row in enumerate(rows(names), start=1):
        tracking.log(row, step=step, commit=True)
        kept.append({"step": step, **row})
    tracking.finish()
    return outcome.by_name(kept, "step")


outcome.write(out, {"verl": verl, "openrlhf": openrlhf, "skyrl": skyrl}[stack](), outcome.digest())
