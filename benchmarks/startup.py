"""Start-up times: import, help, and the scan of a small log, whole processes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPEATS = 7


def wall(words: list[str]) -> float:
    """Median milliseconds of a whole process."""
    costs = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        subprocess.run(words, capture_output=True, check=False)
        costs.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(costs)


def log(directory: Path, rows: int) -> Path:
    path = directory / f"log{rows}.jsonl"
    names = [f"metric_{n}" for n in range(17)] + ["loss", "grad_norm", "reward"]
    lines = (json.dumps({"step": s, **dict.fromkeys(names, 1.0 + s % 7)}) for s in range(rows))
    path.write_text("\n".join(lines))
    return path


def main() -> None:
    command = str(Path(sys.executable).with_name("rlprobe"))
    bare = wall([sys.executable, "-c", "pass"])
    print("| what | ms | less a bare interpreter |")
    print("| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as scratch:
        cases = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "import rlprobe": [sys.executable, "-c", "import rlprobe"],
            "rlprobe --help": [command, "--help"],
            "rlprobe scan, 200 rows": [command, "scan", str(log(Path(scratch), 200))],
            "rlprobe scan, 1,000 rows": [command, "scan", str(log(Path(scratch), 1000))],
        }
        for name, words in cases.items():
            cost = wall(words)
            print(f"| {name} | {cost:.0f} | {cost - bare:.0f} |", flush=True)


if __name__ == "__main__":
    main()
