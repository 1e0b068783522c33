"""What is worth knowing about a trainer: its algorithm, its model, its settings."""

from __future__ import annotations

import enum
import re
from typing import Any

SETTINGS = (
    "beta",
    "bf16",
    "delta",
    "epsilon",
    "epsilon_high",
    "fp16",
    "generation_batch_size",
    "gradient_accumulation_steps",
    "ignore_data_skip",
    "importance_sampling_level",
    "learning_rate",
    "logging_nan_inf_filter",
    "logging_steps",
    "loss_type",
    "lr_scheduler_type",
    "mask_truncated_completions",
    "max_completion_length",
    "max_grad_norm",
    "max_length",
    "max_prompt_length",
    "max_steps",
    "multi_objective_aggregation",
    "num_generations",
    "num_iterations",
    "num_train_epochs",
    "optim",
    "output_dir",
    "per_device_train_batch_size",
    "reward_weights",
    "save_only_model",
    "save_steps",
    "scale_rewards",
    "seed",
    "steps_per_generation",
    "temperature",
    "top_entropy_quantile",
    "top_p",
    "use_vllm",
    "vllm_mode",
    "warmup_ratio",
    "warmup_steps",
    "weight_decay",
)
_PLAIN = (bool, int, float, str)


def algorithm(trainer: Any) -> str | None:
    """GRPO, RLOO, DPO, … from the trainer's class or its ancestors; None for a bare Trainer."""
    for kind in type(trainer).__mro__:
        match = re.fullmatch(r"(?:_?Unsloth)?_?(\w+?)Trainer", kind.__name__)
        trl = kind.__module__.partition(".")[0] == "trl"
        if match and (trl or match[1].isupper()) and match[1] not in {"_Base", "Base"}:
            return match[1]
    return None


def framework(trainer: Any) -> str:
    """Whose trainer it is: TRL's, or one of transformers without it. Both name metrics alike."""
    modules = (kind.__module__.partition(".")[0] for kind in type(trainer).__mro__)
    return "trl" if "trl" in modules else "transformers"


def model_name(trainer: Any) -> str | None:
    """What the model was loaded from."""
    config = getattr(trainer.model, "config", None)
    name = getattr(config, "_name_or_path", None) or getattr(trainer.model, "name_or_path", None)
    return str(name) if name else None


def settings(trainer: Any) -> dict[str, Any]:
    """The trainer's arguments that say how it trains."""
    known = {name: getattr(trainer.args, name, None) for name in SETTINGS}
    chosen = {name: _plain(value) for name, value in known.items() if value is not None}
    names = getattr(trainer, "reward_func_names", None)
    if names:
        chosen["reward_funcs"] = [str(name) for name in names]
    chosen["world_size"] = int(getattr(trainer.args, "world_size", 1))
    chosen["trainer"] = type(trainer).__name__
    return chosen


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, _PLAIN) else str(value)
