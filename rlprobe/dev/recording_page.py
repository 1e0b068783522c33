"""Generates docs/recording.md: what `rlprobe record` records from inside, from the tested table."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

NAME = "recording.md"


def rows() -> list[dict[str, Any]]:
    """The rows of `schemas/recorded.toml`."""
    text = files("rlprobe.schemas").joinpath("recorded.toml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = tomllib.loads(text)["recorded"]
    return found


def page() -> str:
    """The page: how it works, then the table of what is tapped and how that is tested."""
    return _PROSE.format(table=_table())


def _table() -> str:
    head = ("of", "recorded", "by", "tested with")
    lines = [head, tuple("---" for _ in head)]
    lines += [(row["framework"], row["recorded"], row["how"], _tested(row)) for row in rows()]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _tested(row: dict[str, Any]) -> str:
    package = f"`{row['package']}`"
    if row.get("logging"):
        return f"the logging of {package}, against what it was handed; its published calls"
    if not row.get("scripts"):
        return f"its published calls ({package})"
    if row.get("handed"):
        return f"{package}, against what it was handed"
    rounded = ", rounded to float32 as that is" if row.get("single") else ""
    return f"{package}, against what it stored{rounded}"


_PROSE = """\
# What `rlprobe record` records

```
rlprobe record --run runs/my-run python train.py
```

Training code already says everything to its tracker. `record` listens there: when a script imports
a tracker, the calls that carry numbers get a *tap*, and each call then goes on as before, with the
same result and the same exceptions. The tracker may be offline, disabled or without an account. No
line of the script changes, and nothing is imported that the script does not import, but for the
recorder itself.

{table}

Each row is tested with the real package unless it says otherwise: an unchanged script is run plain
and under `record`; every value that the tracker stored is in the recording, at its step and to the
last bit; and weights and the state of all random number generators are the same in both runs
(`make test-integration`). The stacks that want GPUs are tested with their logging alone, called as
their trainers do, and with classes of the signatures that they publish.

## Rules

- **Names** go through the same [alias files](frameworks.md) as logs: `train/entropy_loss` of
  Stable-Baselines3 becomes `entropy`, with its sign turned. A name in no table is kept.
- **The step** is the one given with the call; of W&B, trackio, SwanLab and Accelerate the trainer's
  own where the row holds it (`train/global_step`, or what `define_metric` names for more than
  evaluations), else the tracker's. A value without any is the n-th of its name.
- **Said twice, recorded once.** What a tracker hands on to another one (Stable-Baselines3 to
  TensorBoard, Accelerate or verl to all of theirs) is one row. Two trackers that are told the same
  by the script tell of one run; of one name at one step the last value counts.
- **Several runs.** The second `wandb.init`, `SummaryWriter` or trial of a process is a run of its
  own, beside the first: `runs/my-run-2`. A writer for evaluations beside that for training (`val/`)
  is not: its values are below `eval/`.
- **Several processes.** Ranks started by torchrun, accelerate, DeepSpeed, mpirun, srun or Ray are
  ranks of one run. Ray actors that generate, reward or simulate are told by their names
  (`RLPROBE_ROLE` overrides) and keep to rows of their own. A process that a recording one has
  started, and that is no rank, records nothing.
- **A Trainer** of `transformers` or TRL in the process is recorded by a callback, and takes what
  trackers were told into its rows.
- **A printed log** is read where no process records from inside, by the reader that
  [reads logs](formats.md).
- **Without rlprobe** in the command's Python, or on a Python that is too old for it (from 3.8 on),
  taps write lines that the launcher records: scalars as here, and no rollouts.

At its end `record` says what it has got: `812 rows from wandb.log, 2 ranks; recorded in ...`, or
why there is nothing. `rlprobe doctor -- python train.py` says beforehand what would be recorded.

## A tracker of your own

Another package is tapped by an entry point of the group `rlprobe.taps`, whose name is the module
that is waited for:

```toml
[project.entry-points."rlprobe.taps"]
"acme.tracking" = "acme_rlprobe:install"
```

`install(module)` is called after the first import of `acme.tracking`; `rlprobe.taps.wrapping.tap`
and `rlprobe.taps.hub.HUB.row` do the rest, as in the modules of `rlprobe/taps/packages`.
"""
