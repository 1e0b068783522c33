"""What reading a foreign log costs: JSON Lines of 20 metrics, beside a bare orjson loop and peers.

Whole processes, wall time and peak memory. Peers are run where their commands are found; some read
only as much as they can, and their output says so.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROWS = 1_000_000
PEER_ROWS = 10_000  # rldoctor's cost grows with the square of the rows: more would not end
PEERS = {
    "losslint": ["losslint", "check"],
    "runmedic": ["runmedic", "diagnose"],
    "trainproof": ["trainproof", "doctor"],
    "rldoctor": ["rl-doctor", "diagnose"],
}
BARE = "import orjson, sys\nfor line in open(sys.argv[1], 'rb'): orjson.loads(line)"
READ = "import sys\nfrom rlprobe.importers import open_runs\nopen_runs(sys.argv[1])"


def log(path: Path, rows: int) -> Path:
    """A log of so many steps."""
    numbers = random.Random(0)
    names = ["loss", "grad_norm", "reward", "kl", *(f"metric_{n}" for n in range(16))]
    with path.open("w", encoding="utf-8") as file:
        for step in range(rows):
            row = {name: 1 + numbers.random() for name in names}
            file.write(json.dumps({"step": step, **row}) + "\n")
    return path


def timed(words: list[str]) -> tuple[float, float]:
    """Wall seconds and peak MB of a process."""
    begin = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    return time.perf_counter() - begin, usage.ru_maxrss / 1024


def main() -> None:
    own = str(Path(sys.executable).with_name("rlprobe"))
    print("| what | rows | wall, s | peak, MB | x bare orjson |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as scratch:
        for rows in (PEER_ROWS, ROWS):
            path = str(log(Path(scratch) / f"log{rows}.jsonl", rows))
            cases = {
                "orjson loop": [sys.executable, "-c", BARE, path],
                "rlprobe, reading": [sys.executable, "-c", READ, path],
                "rlprobe scan": [own, "scan", path],
            }
            if rows == PEER_ROWS:
                found = {name: words for name, words in PEERS.items() if shutil.which(words[0])}
                cases |= {name: [*words, path] for name, words in found.items()}
            bare = 0.0
            for name, words in cases.items():
                wall, peak = timed(words)
                bare = bare or wall
                print(
                    f"| {name} | {rows:,} | {wall:.2f} | {peak:.0f} | {wall / bare:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
