"""What one step of 20 scalars costs: on the training thread, and in CPU of the whole process tree.

Each tool runs in processes of its own: one that records nothing (set-up and tear-down) and one that
records, in bursts with pauses as a training loop has them. The difference of their CPU times (user
and system, all threads and all waited-for children) is the cost of recording.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = 20_000
REPEATS = 3
OLD = Path(sys.prefix) / "rlprobe-0.1.0"

# Each defines record(step, metrics) and close().
TOOLS = {
    "jsonl": """
import json
file = open(directory + "/log.jsonl", "w")
def record(step, metrics):
    file.write(json.dumps({"step": step, **metrics}) + "\\n"); file.flush()
close = file.close
""",
    "rlprobe": """
from rlprobe import Recorder
recorder = Recorder(directory)
def record(step, metrics):
    recorder.step(step, **metrics)
def close():
    recorder.close()
    lost = recorder._writer.totals()
    assert not lost, lost
""",
    "rlprobe 0.1.0": """
from rlprobe import Recorder
recorder = Recorder(directory + "/run")
def record(step, metrics):
    recorder.log_step(step, **metrics)
close = recorder.close
""",
    "tensorboardX": """
from tensorboardX import SummaryWriter
writer = SummaryWriter(directory)
def record(step, metrics):
    for name, value in metrics.items():
        writer.add_scalar(name, value, step)
close = writer.close
""",
    "trackio": """
import trackio
run = trackio.init(project="bench")
def record(step, metrics):
    trackio.log(metrics, step=step)
close = trackio.finish
""",
    "wandb offline": """
import wandb
quiet = {"silent": True, "console": "off"}
run = wandb.init(project="bench", mode="offline", dir=directory, settings=quiet)
def record(step, metrics):
    run.log(metrics, step=step)
close = run.finish
""",
}
SLOW = {"tensorboardX": 2_000, "trackio": 2_000, "wandb offline": 5_000}

LOOP = """
import statistics, sys, time
directory, steps = sys.argv[1], int(sys.argv[2])
{tool}
metrics = {{f"train/metric_{{n}}": 0.1 * n for n in range(20)}}
for step in range(10):
    record(step, metrics)
time.sleep(0.5)
clock, costs, burst = time.perf_counter, [], 500
for first in range(10, steps, burst):
    begin = clock()
    for step in range(first, first + burst):
        record(step, metrics)
    costs.append((clock() - begin) / burst * 1e6)
    time.sleep(0.02)
close()
print(statistics.median(costs) if costs else 0.0)
"""


def run(tool: str, steps: int) -> tuple[float, float]:
    """Median microseconds of a call, and CPU seconds of the whole run."""
    with tempfile.TemporaryDirectory() as directory:
        env = {
            **os.environ,
            "WANDB_SILENT": "true",
            "TRACKIO_DIR": directory,
            "HF_HUB_OFFLINE": "1",
        }
        if tool == "rlprobe 0.1.0":
            env["PYTHONPATH"] = str(OLD)
        code = LOOP.format(tool=TOOLS[tool])
        process = subprocess.Popen(
            [sys.executable, "-c", code, directory, str(steps)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            cwd=directory,
        )
        output, errors = process.stdout, process.stderr
        assert output is not None
        assert errors is not None
        lines, complaint = output.read().split(), errors.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        if status:
            raise RuntimeError(f"{tool}: {complaint[-2000:]}")
        return float(lines[-1]), usage.ru_utime + usage.ru_stime


def measure(tool: str) -> tuple[float, float]:
    """Median over repeats of (microseconds a call, microseconds of CPU a step)."""
    steps = SLOW.get(tool, STEPS)
    calls, cpu = [], []
    for _ in range(REPEATS):
        idle = run(tool, 0)[1]
        call, busy = run(tool, steps)
        calls.append(call)
        cpu.append((busy - idle) / steps * 1e6)
    return statistics.median(calls), statistics.median(cpu)


def main() -> None:
    print("| tool | call, us | x rlprobe | CPU a step, us | x JSONL |")
    print("| --- | --- | --- | --- | --- |")
    costs = {}
    for tool in TOOLS:
        if tool == "rlprobe 0.1.0" and not OLD.is_dir():
            continue
        costs[tool] = measure(tool)
    call, cpu = costs["rlprobe"][0], costs["jsonl"][1]
    for tool, (one, total) in costs.items():
        print(
            f"| {tool} | {one:.1f} | {one / call:.1f} | {total:.1f} | {total / cpu:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
