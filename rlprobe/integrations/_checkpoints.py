"""What a checkpoint directory of the Trainer holds, told from its file names."""

from __future__ import annotations

import re
from pathlib import Path

# Names are matched anywhere in the directory's first level; DeepSpeed keeps model and optimizer
# in `global_step<N>/`.
_PARTS = {
    "model": r"(model|pytorch_model|adapter_model)[\w.-]*\.(safetensors|bin)(\.index\.json)?"
    r"|pytorch_model_fsdp_\d+|global_step\d+",
    "optimizer": r"optimizer(_\d+)?(\.(pt|bin))?|rank\d+-of-\d+-optimizer\.pt|global_step\d+",
    "scheduler": r"scheduler\.pt",
    "rng": r"rng_state(_\d+)?\.pth",
    "trainer_state": r"trainer_state\.json",
    "scaler": r"scaler\.pt",
}
_NEEDED = ("model", "optimizer", "scheduler", "rng")


def parts(path: Path, *, skips_data: bool) -> tuple[list[str], list[str]]:
    """What a checkpoint has, and what it lacks to go on as if nothing had happened.

    Args:
        path: the checkpoint's directory.
        skips_data: the run resumes without winding the data forward (`ignore_data_skip`).
    """
    names = [entry.name for entry in path.iterdir()]
    has = [part for part, form in _PARTS.items() if any(re.fullmatch(form, name) for name in names)]
    lacks = [part for part in _NEEDED if part not in has]
    if skips_data:
        lacks.append("data_cursor")
    elif "trainer_state" in has:
        has.append("data_cursor")
    return has, lacks


def directory(output_dir: str | Path, step: int) -> Path:
    """Where the Trainer puts the checkpoint of a step."""
    return (Path(output_dir) / f"checkpoint-{step}").absolute()
