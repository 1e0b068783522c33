"""Run the fault lab: python -m benchmarks.accuracy [--seeds N] [--steps 300] [--only FAULT].

Each run is trained once per output directory; a second call with the same `--out` only scans.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.accuracy import peers
from benchmarks.accuracy.faults import FAULTS, Fault
from benchmarks.accuracy.scoring import Alarm, Score, score, table
from rlprobe.errors import RlprobeError
from rlprobe.findings import ScanReport, Severity
from rlprobe.importers import open_runs
from rlprobe.scan.engine import scan

ENVIRONMENT = {
    **os.environ,
    "ACCELERATE_USE_CPU": "true",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_OFFLINE": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
}


@dataclass(frozen=True)
class Trial:
    """One run of the lab: a fault with a seed, at a step."""

    fault: Fault
    seed: int
    at: int
    steps: int
    out: Path

    @property
    def log(self) -> Path:
        return self.out / "trainer_state.json"


def main() -> None:
    given = _arguments()
    out = given.out or Path(tempfile.mkdtemp(prefix="fault-lab-"))
    chosen = [fault for fault in FAULTS if not given.only or fault.name in given.only]
    trials = [
        Trial(
            fault,
            seed,
            _step_of_fault(given.steps, seed),
            given.steps,
            out / f"{fault.name}-{seed}",
        )
        for seed in range(given.seeds)
        for fault in chosen
    ]
    with ThreadPoolExecutor(given.jobs) as pool:
        for trial in pool.map(_trained, trials):
            print(f"trained {trial.out.name}", file=sys.stderr, flush=True)
    others = peers.installed()
    missing = "" if others else " (no peer is installed)"
    print(f"\n{len(trials)} runs of {given.steps} steps in {out}{missing}\n")
    scores = [item for trial in trials for item in _scores(trial, others)]
    print(table(scores))
    if given.json:
        given.json.write_text(json.dumps([asdict(item) for item in scores], indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--only", action="append", choices=[fault.name for fault in FAULTS])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="keep the runs here, and use those already there")
    parser.add_argument("--json", type=Path, help="write the scores here, too")
    return parser.parse_args()


def _step_of_fault(steps: int, seed: int) -> int:
    """After the run has learnt its task; not the same step with each seed."""
    return steps // 2 + 7 * seed


# --- training -------------------------------------------------------------------------------------


def _trained(trial: Trial) -> Trial:
    if trial.log.exists():
        return trial
    shutil.rmtree(trial.out, ignore_errors=True)
    for arguments in _launches(trial):
        _prepare(trial, resumed="--resume" in arguments)
        command = [sys.executable, "-m", "benchmarks.accuracy.training", str(trial.out), *arguments]
        with (trial.out / "output.txt").open("ab") as output:
            subprocess.run(
                command, env=ENVIRONMENT, stdout=output, stderr=output, check=False, timeout=1200
            )
    return trial


def _launches(trial: Trial) -> Iterator[list[str]]:
    common = ["--seed", str(trial.seed), "--steps", str(trial.steps), *trial.fault.options]
    if not trial.fault.restarts:
        yield [*common, "--fault", trial.fault.name, "--at", str(trial.at)]
        return
    yield [*common, "--stop", str(trial.at)]
    yield [*common, "--resume", str(trial.out / f"checkpoint-{trial.at}")]


def _prepare(trial: Trial, *, resumed: bool) -> None:
    trial.out.mkdir(parents=True, exist_ok=True)
    if resumed and trial.fault.name == "lost_optimizer":
        for name in ("optimizer.pt", "scheduler.pt"):
            (trial.out / f"checkpoint-{trial.at}" / name).unlink(missing_ok=True)


# --- scans ----------------------------------------------------------------------------------------


def _scores(trial: Trial, others: dict[str, peers.Adapter]) -> Iterator[Score]:
    at = trial.at + 1 if trial.fault.restarts else trial.at
    yield score("recording", trial.fault, trial.seed, at, _alarms(trial.out / "recording"))
    if not (trial.fault.in_log and trial.log.exists()):
        return
    yield score("trainer log", trial.fault, trial.seed, at, _alarms(trial.log))
    rows = peers.jsonl_of(trial.log, trial.out / "log.jsonl")
    for name, adapter in others.items():
        yield score(name, trial.fault, trial.seed, at, list(adapter(rows)), by_class=False)


def _alarms(path: Path) -> list[Alarm]:
    try:
        reports = [scan(run) for run in open_runs(path)]
    except RlprobeError as error:
        return [Alarm(f"UNREADABLE: {error}", None)]
    return [alarm for report in reports for alarm in _of(report)]


def _of(report: ScanReport) -> Iterator[Alarm]:
    for finding in report.findings:
        if finding.severity >= Severity.WARNING:
            name = f"{finding.detector}:{finding.variant}" if finding.variant else finding.detector
            critical = finding.severity is Severity.CRITICAL
            yield Alarm(name, finding.first_bad_step, critical)


if __name__ == "__main__":
    main()
