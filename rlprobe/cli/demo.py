"""`rlprobe demo`: a small real training, recorded, scanned and shown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    directory: Annotated[
        Path | None, typer.Argument(help="Where to record; default: runs/demo-<time>.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the training.")] = 0,
) -> int:
    """Record, scan and show a small real training.

    A tiny policy, whose prompts become impossible at step 150.
    """
    from rlprobe.cli import main
    from rlprobe.demo.run import fresh_directory, record

    place = fresh_directory(directory)
    print("A softmax policy learns sums by group-relative policy gradient (NumPy, 240 steps).")
    print("From step 150 on, 14 of 16 prompts have an answer that it cannot write.\n")
    record(place, seed=seed)
    for words in (["scan", str(place)], ["show", str(place), "--step", "150"]):
        print(f"$ rlprobe {' '.join(words)}\n", flush=True)
        main(words)
        print(flush=True)
    print(f"The recording lies in {place}. Ask it anything: rlprobe query {place} --help")
    return 0
