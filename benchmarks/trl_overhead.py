"""What recording costs a real TRL run: pairs of the same training, recorded and not.

The tiny GRPO run of the integration tests, 20-30 steps a second on a CPU: a slow step would hide
the cost. The order within a pair alternates; the figure is the median over pairs.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PAIRS = 6
STEPS = 300
SCRIPT = Path(__file__).parents[1] / "tests" / "integrations" / "tiny_grpo.py"
LAUNCH = """
import json, runpy, sys, time
recorded, directory, script, steps = sys.argv[1:5]
sys.argv = [script, directory + "/out", "--steps", steps]
from transformers import Trainer
if recorded == "1":
    from rlprobe.integrations.trl import attach
train = Trainer.train
def timed(self, *args, **kwargs):
    if recorded == "1":
        attach(self, directory + "/run")
    begin = time.perf_counter()
    try:
        return train(self, *args, **kwargs)
    finally:
        print("SECONDS", time.perf_counter() - begin)
Trainer.train = timed
runpy.run_path(script, run_name="__main__")
"""


def seconds(*, recorded: bool) -> float:
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [sys.executable, "-c", LAUNCH, str(int(recorded)), directory, str(SCRIPT), str(STEPS)],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
        )
    told = [line for line in done.stdout.splitlines() if line.startswith("SECONDS")]
    return float(told[-1].split()[1])


def main() -> None:
    print("| pair | bare, s | recorded, s | steps a second | slowdown |")
    print("| --- | --- | --- | --- | --- |")
    slowdowns = []
    for pair in range(PAIRS):
        order = [False, True] if pair % 2 else [True, False]
        cost = {recorded: seconds(recorded=recorded) for recorded in order}
        slowdowns.append(cost[True] / cost[False] - 1)
        speed = STEPS / cost[False]
        row = f"| {pair} | {cost[False]:.2f} | {cost[True]:.2f} | {speed:.0f} |"
        print(f"{row} {slowdowns[-1]:+.1%} |", flush=True)
    print(f"\nmedian slowdown {statistics.median(slowdowns):+.1%}")


if __name__ == "__main__":
    main()
