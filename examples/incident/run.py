"""The incident: train with and without guards, record, scan, compare.

python examples/incident/run.py               wreck a policy, and see what the scan says
python examples/incident/run.py --guarded     the same seed with the guards
python examples/incident/run.py --seeds 20    both, for 20 seeds, as a table
python examples/incident/run.py --page        write README.md beside this file again
python examples/incident/run.py --trl         the guards on a tiny TRL GRPOTrainer
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a script: `examples` is importable

from examples.incident.training import HARD_FROM, HARD_TO, Guards, train
from rlprobe import Finding, Recorder, ScanReport, Severity, diagnose

NEAR = 2  # steps: the mean reward of a batch may begin to fall by chance just before
WRECKED = 1 / 3  # of the accuracy before the hard prompts


@dataclass(frozen=True)
class Outcome:
    """What became of one training.

    Attributes:
        before, back, end: accuracy on easy prompts before the hard prompts arrive, when the easy
            ones come back, and after the last step.
        roots: root findings of the critical incidents.
    """

    before: float
    back: float
    end: float
    roots: tuple[Finding, ...]

    @property
    def failed(self) -> bool:
        """Wrecked, and the scan says so: one critical incident, from the arrival on."""
        at_arrival = [abs(root.first_bad_step - HARD_FROM) <= NEAR for root in self.roots]
        return self.end < WRECKED * self.before and at_arrival == [True]

    @property
    def held(self) -> bool:
        """At least as good as before, and no critical incident."""
        return self.end >= self.before and not self.roots


def one(run_dir: Path, *, seed: int, guards: Guards) -> Outcome:
    """Train, record, scan."""
    config = {"num_generations": 8, "seed": seed}
    with Recorder(run_dir, algorithm="GRPO", model="softmax (NumPy)", config=config) as recorder:
        accuracy = train(recorder, seed=seed, guards=guards)
    roots = critical_roots(diagnose(run_dir))
    return Outcome(accuracy[HARD_FROM - 1], accuracy[HARD_TO - 1], accuracy[-1], roots)


def critical_roots(report: ScanReport) -> tuple[Finding, ...]:
    """The roots of the critical incidents."""
    by_key = {finding.key: finding for finding in report.findings}
    bad = [item for item in report.incidents if item.severity is Severity.CRITICAL]
    return tuple(by_key[item.root] for item in bad)


def scanned(run_dir: str, width: int = 90) -> str:
    """What `rlprobe scan` prints."""
    from rlprobe.cli import main as rlprobe

    os.environ |= {"COLUMNS": str(width), "NO_COLOR": "1"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        rlprobe(["scan", run_dir])
    return printed.getvalue()


def table(seeds: int) -> Iterator[str]:
    """One row per seed as it is done, then the sums."""
    yield "| seed | accuracy before | unguarded, end | scan | guarded, end | critical incidents |"
    yield "| --- | --- | --- | --- | --- | --- |"
    failed = held = 0
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            bare = one(Path(folder) / "bare", seed=seed, guards=Guards())
            safe = one(Path(folder) / "safe", seed=seed, guards=Guards(gate=True, clamp=True))
        failed, held = failed + bare.failed, held + safe.held
        told = ", ".join(f"{root.detector} from step {root.first_bad_step}" for root in bare.roots)
        yield (
            f"| {seed} | {bare.before:.2f} | {bare.end:.2f} | {told or 'nothing critical'} "
            f"| {safe.end:.2f} | {len(safe.roots) or 'none'} |"
        )
    yield f"\nUnguarded failed in {failed} of {seeds} seeds, guarded held in {held} of {seeds}."


def show(run_dir: Path, *, seed: int, guards: Guards) -> None:
    """One training, and its scan."""
    outcome = one(run_dir, seed=seed, guards=guards)
    print(scanned(str(run_dir)))
    print(
        f"accuracy on easy prompts: {outcome.before:.2f} before the hard ones, "
        f"{outcome.back:.2f} after them, {outcome.end:.2f} at the end"
    )


def main() -> None:
    """Parse the command line and do what it says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--guarded", action="store_true", help="with both guards")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, help="compare so many seeds")
    parser.add_argument("--run", type=Path, help="where to record; default: a new directory")
    parser.add_argument("--page", action="store_true", help="write README.md again")
    parser.add_argument("--trl", action="store_true", help="on a tiny GRPOTrainer instead")
    given = parser.parse_args()
    run_dir = given.run or Path(tempfile.mkdtemp(prefix="incident-")) / "run"
    if given.page:
        from examples.incident.page import write

        write(seeds=given.seeds or 20)
    elif given.trl:
        from examples.incident.tiny_trl import main as train_with_trl

        train_with_trl(run_dir, guarded=given.guarded)
    elif given.seeds:
        for line in table(given.seeds):
            print(line, flush=True)
    else:
        show(run_dir, seed=given.seed, guards=Guards(gate=given.guarded, clamp=given.guarded))


if __name__ == "__main__":
    main()
