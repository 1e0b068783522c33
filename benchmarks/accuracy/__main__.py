"""Run the fault lab: python -m benchmarks.accuracy [--seeds N] [--steps 140] [--only FAULT].

Each run is trained once per output directory; a second call with the same `--out` only scans.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from benchmarks.accuracy import peers
from benchmarks.accuracy.faults import FAULTS
from benchmarks.accuracy.scoring import Alarm, Score, score, table
from benchmarks.accuracy.trials import Trial, prepare, trained
from rlprobe.errors import RlprobeError
from rlprobe.findings import ScanReport, Severity
from rlprobe.importers import open_runs
from rlprobe.scan.engine import scan


def main() -> None:
    given = _arguments()
    prepare()
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
        for seed in range(given.first_seed, given.first_seed + given.seeds)
        for fault in chosen
    ]
    with ThreadPoolExecutor(given.jobs) as pool:
        for trial in pool.map(trained, trials):
            print(f"{time.strftime('%H:%M')} trained {trial.out.name}", file=sys.stderr, flush=True)
    if given.train_only:
        return
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
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=140)
    parser.add_argument("--only", action="append", choices=[fault.name for fault in FAULTS])
    parser.add_argument("--train-only", action="store_true", help="say nothing about the runs")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="keep the runs here, and use those already there")
    parser.add_argument("--json", type=Path, help="write the scores here, too")
    return parser.parse_args()


def _step_of_fault(steps: int, seed: int) -> int:
    """After the run has learnt its task; not the same step with each seed."""
    return steps // 2 + 7 * (seed % 5)


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
