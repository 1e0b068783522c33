"""What reading a long log costs: MB/s and peak memory, beside bare loops, grep and peers.

Whole processes: CPU time and peak memory, so that start-up counts and a second core does not. JSON
Lines are put beside a loop of orjson, tables beside a loop of csv.reader and beside pyarrow, and
console output beside a loop over its lines and `grep -c` (ripgrep where it is found), which is as
fast as a file can be looked at. Peers are run where their commands are found, on short logs: the
cost of some grows with the square of the rows.

    python -m benchmarks.read_cost [MB]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import long_logs

MEGABYTES = 100
FLAT = 4  # times the size, at which the peak must be about the same
PEER_MEGABYTES = 2
PEERS = {
    "losslint": ["losslint", "check"],
    "runmedic": ["runmedic", "diagnose"],
    "trainproof": ["trainproof", "doctor"],
    "rldoctor": ["rl-doctor", "diagnose"],
    "rlprobe 0.1.0": ["rlprobe-0.1.0", "scan"],
}
ORJSON = """
import orjson, sys
for line in open(sys.argv[1], "rb"):
    try:
        orjson.loads(line)
    except ValueError:
        pass
"""
CELLS = "import csv, sys\nfor row in csv.reader(open(sys.argv[1], newline='')): pass"
ARROW = "import sys\nfrom pyarrow import csv\ncsv.read_csv(sys.argv[1])"
LINES = "import sys\nfor line in open(sys.argv[1], 'rb'): pass"
READ = "import sys\nfrom rlprobe.importers import open_runs\nopen_runs(sys.argv[1])"
NOTHING = "import rlprobe.importers"


def cost(words: list[str]) -> tuple[float, float, float]:
    """CPU seconds, wall seconds and peak MB of a process."""
    begin = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    seconds = usage.ru_utime + usage.ru_stime
    return seconds, time.perf_counter() - begin, usage.ru_maxrss / 1024


def row(log: str, what: str, size: int, bare: float, words: list[str]) -> float:
    """Print what a process costs; its CPU seconds."""
    cpu, wall, peak = cost(words)
    print(
        f"| {log} | {what} | {size / 1e6:.0f} | {size / 1e6 / cpu:,.0f} | {wall:.1f} | {peak:.0f} "
        f"| {cpu / bare if bare else 1:.2f} |",
        flush=True,
    )
    return cpu


def console(folder: Path, name: str, size: int) -> None:
    """One kind of console output."""
    path = long_logs.write(folder / f"{name}.log", long_logs.CONSOLE[name], size)
    own = path.stat().st_size
    bare = row(name, "loop over lines", own, 0, [sys.executable, "-c", LINES, str(path)])
    grep = ["rg", "-c"] if shutil.which("rg") else ["grep", "-c", "-F"]
    row(name, " ".join(grep), own, bare, [*grep, "loss", str(path)])
    row(name, "rlprobe", own, bare, [sys.executable, "-c", READ, str(path)])
    path.unlink()


def lines(folder: Path, name: str, size: int) -> None:
    """One dialect of JSON Lines."""
    path = long_logs.write(folder / f"{name}.jsonl", long_logs.JSONL[name], size)
    own = path.stat().st_size
    bare = row(name, "orjson loop", own, 0, [sys.executable, "-c", ORJSON, str(path)])
    row(name, "rlprobe", own, bare, [sys.executable, "-c", READ, str(path)])
    path.unlink()


def table(folder: Path, name: str, size: int) -> None:
    """One kind of table with a delimiter."""
    path = long_logs.write(folder / f"{name}.csv", long_logs.CSV[name], size)
    own = path.stat().st_size
    bare = row(name, "csv.reader loop", own, 0, [sys.executable, "-c", CELLS, str(path)])
    row(name, "pyarrow.csv", own, bare, [sys.executable, "-c", ARROW, str(path)])
    row(name, "rlprobe", own, bare, [sys.executable, "-c", READ, str(path)])
    path.unlink()


def peers(folder: Path) -> None:
    """Short logs, which every reader can take."""
    path = long_logs.write(folder / "short.jsonl", long_logs.jsonl, PEER_MEGABYTES * 1_000_000)
    own = path.stat().st_size
    bare = row("short", "orjson loop", own, 0, [sys.executable, "-c", ORJSON, str(path)])
    row("short", "rlprobe", own, bare, [sys.executable, "-c", READ, str(path)])
    for name, words in PEERS.items():
        if shutil.which(words[0]):
            row("short", name, own, bare, [*words, str(path)])


def main() -> None:
    size = int(sys.argv[1] if len(sys.argv) > 1 else MEGABYTES) * 1_000_000
    print(f"start-up: {cost([sys.executable, '-c', NOTHING])[0]:.2f} s\n")
    print("| log | what | MB | MB/s of CPU | wall, s | peak, MB | x the bare loop |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as scratch:
        for name in long_logs.CONSOLE:
            console(Path(scratch), name, size)
        console(Path(scratch), "verl", FLAT * size)
        for name in long_logs.JSONL:
            lines(Path(scratch), name, size)
        lines(Path(scratch), "jsonl", FLAT * size)
        for name in long_logs.CSV:
            table(Path(scratch), name, size)
        peers(Path(scratch))


if __name__ == "__main__":
    main()
