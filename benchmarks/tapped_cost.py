"""What a tapped call costs on top of the tracker's own, on the training thread.

In one process under `rlprobe record`, bursts of calls with the tap and of calls without it take
turns, so that whatever else the machine does falls on both. The tap and the recorder's thread are
as they are in any recording; the steps go on from burst to burst.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.scratch import in_memory

CALLS = 6_000
SLOW = {"mlflow.log_metrics": 200, "trackio.log": 2_000}
BURST = 50
VALUES = 20

# Each defines owner and name of what is tapped, and call(step).
TOOLS = {
    "wandb.log, offline": """
import wandb, wandb.sdk.wandb_run
owner, name = wandb.sdk.wandb_run.Run, "log"
quiet = {"silent": True, "console": "off"}
run = wandb.init(project="bench", mode="offline", dir=directory, settings=quiet)
def call(step):
    run.log(metrics, step=step)
""",
    "wandb.log, disabled": """
import wandb
run = wandb.init(project="bench", mode="disabled")
owner, name = type(run), "log"
def call(step):
    run.log(metrics, step=step)
""",
    "SummaryWriter.add_scalar": """
from torch.utils.tensorboard import SummaryWriter
owner, name = SummaryWriter, "add_scalar"
writer = SummaryWriter(directory + "/runs")
def call(step):
    writer.add_scalar("loss", 0.5, step)
""",
    "tensorboardX add_scalar": """
from tensorboardX import SummaryWriter
owner, name = SummaryWriter, "add_scalar"
writer = SummaryWriter(directory + "/runs")
def call(step):
    writer.add_scalar("loss", 0.5, step)
""",
    "trackio.log": """
import trackio, trackio.run
owner, name = trackio.run.Run, "log"
run = trackio.init(project="bench")
def call(step):
    trackio.log(metrics, step=step)
""",
    "mlflow.log_metrics": """
import mlflow
from mlflow.tracking.client import MlflowClient
owner, name = MlflowClient, "log_batch"
mlflow.set_tracking_uri("sqlite:///" + directory + "/mlflow.db")
mlflow.start_run()
def call(step):
    mlflow.log_metrics(metrics, step=step)
""",
    "Stable-Baselines3 dump": """
from stable_baselines3.common.logger import Logger, configure
owner, name = Logger, "dump"
logger = configure(directory + "/logs", ["csv"])
def call(step):
    for key, value in metrics.items():
        logger.record(key, value)
    logger.dump(step)
""",
    "Accelerator.log": """
import accelerate
owner, name = accelerate.Accelerator, "log"
accelerator = accelerate.Accelerator(cpu=True, log_with="tensorboard", project_dir=directory)
accelerator.init_trackers("bench")
def call(step):
    accelerator.log(metrics, step=step)
""",
}

LOOP = """
import statistics, sys, time
directory, calls, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
metrics = {{f"train/metric_{{n}}": 0.1 * n for n in range({values})}}
{tool}
tapped = getattr(owner, name)
plain = tapped.__wrapped__
clock, cpu = time.perf_counter, time.thread_time
costs, spent, step = {{True: [], False: []}}, {{True: [], False: []}}, 0
for _ in range({burst}):
    call(step)
    step += 1
time.sleep(0.5)
for _ in range(calls // {burst}):
    for with_tap in (True, False):
        setattr(owner, name, tapped if with_tap else plain)
        begin, first = clock(), cpu()
        for step in range(step, step + {burst}):
            call(step)
        spent[with_tap].append((cpu() - first) / {burst} * 1e6)
        costs[with_tap].append((clock() - begin) / {burst} * 1e6)
        step += 1
        time.sleep(0.002)
setattr(owner, name, tapped)
def more(both):
    return statistics.median(on - off for on, off in zip(both[True], both[False]))
with open(out, "w") as file:
    file.write(f"{{statistics.median(costs[False])}} {{more(costs)}} {{more(spent)}}")
"""


def measure(tool: str) -> tuple[float, float, float]:
    """Median microseconds of a call without the tap, what the tap adds, and that of its CPU."""
    with tempfile.TemporaryDirectory(dir=in_memory()) as directory:
        code = LOOP.format(tool=TOOLS[tool], values=VALUES, burst=BURST)
        out = Path(directory) / "costs"
        command = [sys.executable, "-c", code, directory, str(SLOW.get(tool, CALLS)), str(out)]
        record = [sys.executable, "-m", "rlprobe", "record", "--run", directory + "/recording"]
        done = subprocess.run(
            [*record, "--", *command],
            capture_output=True,
            text=True,
            check=False,
            cwd=directory,
            env={
                **os.environ,
                "WANDB_SILENT": "true",
                "TRACKIO_DIR": directory,
                "HF_HUB_OFFLINE": "1",
                "OMP_NUM_THREADS": "1",
            },
        )
        if done.returncode or not out.is_file():
            raise RuntimeError(f"{tool}: {(done.stdout + done.stderr)[-2000:]}")
        own, more, cpu = map(float, out.read_text().split())
        return own, more, cpu


def main() -> None:
    print("| call | its own, us | the tap, us | CPU of that, us | x its own |")
    print("| --- | --- | --- | --- | --- |")
    for tool in TOOLS:
        try:
            own, more, cpu = measure(tool)
        except RuntimeError as error:
            if "ModuleNotFoundError" not in str(error):
                raise
            print(f"| {tool} | not installed | | | |")
            continue
        print(f"| {tool} | {own:.1f} | {more:.2f} | {cpu:.2f} | {1 + more / own:.2f} |", flush=True)


if __name__ == "__main__":
    main()
