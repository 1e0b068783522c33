"""What a scan costs: 1,000,000 steps x 40 metrics, and whether the cost grows linearly.

Beside it, where it is installed, the published rlprobe 0.1.0 on a tenth of the steps.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from rlprobe.recorder import Recorder
from rlprobe.store import arrow, layout, shards

OLD = Path(sys.prefix) / "rlprobe-0.1.0"
METRICS = (
    "loss",
    "policy_loss",
    "lr",
    "grad_norm",
    "reward_mean",
    "reward_std",
    "reward_min",
    "reward_max",
    "kl_mean",
    "approx_kl",
    "entropy",
    "clip_fraction",
    "clip_fraction_low",
    "clip_fraction_high",
    "advantage_mean",
    "advantage_std",
    "advantage_min",
    "advantage_max",
    "zero_variance_group_fraction",
    "completion_length_mean",
    "completion_length_min",
    "completion_length_max",
    "completion_length_p95",
    "terminated_length_mean",
    "truncation_rate",
    "explained_variance",
    "value_loss",
    "step_time",
    "tokens_per_second",
    "mfu",
    "memory_allocated",
    "memory_reserved",
    "reward_component/accuracy",
    "reward_component/format",
    "time/generation",
    "time/update",
    "time/reward",
    "ratio_mean",
    "ratio_max",
    "epoch",
)
FRACTIONS = ("fraction", "rate", "mfu")
SCAN = "import rlprobe, sys\nprint(rlprobe.diagnose(sys.argv[1]).verdict)"


def record(directory: Path, steps: int) -> Path:
    """A healthy run of so many steps, compacted as the recorder would have left it."""
    with Recorder(directory, algorithm="GRPO"):
        pass
    random = np.random.default_rng(0)
    columns = {
        "step": arrow.from_numpy(np.arange(1, steps + 1), pa.int64()),
        "attempt": arrow.from_numpy(np.ones(steps, np.int32), pa.int32()),
        "time": arrow.from_numpy(np.arange(steps) * 1_000_000, arrow.MICROSECONDS),
    }
    for name in METRICS:
        noise = random.normal(0, 0.1, steps)
        small = any(word in name for word in FRACTIONS)
        values = np.clip(0.1 + 0.1 * noise, 0, 1) if small else np.exp(noise)
        columns[name] = arrow.from_numpy(values, pa.float64())
    table = pa.table(columns)
    for number, first in enumerate(range(0, steps, 131_072)):
        shard = layout.ShardName(1, 0, "bench", number, number)
        shards.write(directory / "steps", shard, table.slice(first, 131_072))
    return directory


def timed(code: str, path: Path, env: dict[str, str] | None = None) -> tuple[float, float, str]:
    """Wall seconds, peak memory in MB, and output of a process that runs this code."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
        cwd=path.parent,
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    return time.perf_counter() - begin, usage.ru_maxrss / 1024, output.strip()


def old_recording(directory: Path, steps: int) -> Path:
    """The same kind of run, recorded by rlprobe 0.1.0 itself."""
    code = f"""
import sys, random
from rlprobe import Recorder
recorder = Recorder(sys.argv[1])
names = {list(METRICS)!r}
for step in range({steps}):
    recorder.log_step(step, **{{name: random.random() for name in names}})
    if step % 1000 == 0:
        recorder.flush()
recorder.close()
"""
    timed(code, directory, {"PYTHONPATH": str(OLD)})
    return directory


def main() -> None:
    print("| what | steps | wall, s | peak, MB | us a step |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as scratch:
        for steps in (1_000, 10_000, 100_000, 1_000_000):
            path = record(Path(scratch) / f"run{steps}", steps)
            wall, peak, verdict = timed(SCAN, path)
            each = wall / steps * 1e6
            print(
                f"| rlprobe ({verdict}) | {steps:,} | {wall:.2f} | {peak:.0f} | {each:.2f} |",
                flush=True,
            )
        if OLD.is_dir():
            path = old_recording(Path(scratch) / "old", 100_000)
            doctor = "import sys; from rlprobe.cli import app; sys.argv[1:1] = ['doctor']; app()"
            wall, peak, _ = timed(doctor, path, {"PYTHONPATH": str(OLD)})
            print(f"| rlprobe 0.1.0 | 100,000 | {wall:.2f} | {peak:.0f} | {wall * 10:.2f} |")


if __name__ == "__main__":
    main()
