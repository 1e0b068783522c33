"""The ground truth of two other programs: python -m benchmarks.accuracy.suites [--out FOLDER].

Both ship generators of runs with one known fault each, for tests of their own:

rldoctor 0.2.0   `rl_doctor.simulate.simulate(name, seed)`: 11 faults, drifting from the first step
rlprobe 0.1.0    `rlprobe.testing.synth.generate_run`: 14 faults from the middle of the run on; the
                 published package of this name, of other hands and another design

Each is installed from the package index into an environment of its own, unless a Python that has it
is given (`--rldoctor`, `--rlprobe-0-1`, or RLDOCTOR_PYTHON, RLPROBE_0_1_PYTHON). A fault is found
if one of its names is reported at warning (info, where the scenario does no harm), with an onset
within the first third of the drift; a healthy run must be quiet.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlprobe.findings import Finding, Severity
from rlprobe.importers import open_runs
from rlprobe.scan.engine import scan

HEALTHY = "healthy"
SLACK = 3  # rows before the fault that are no false alarm
_WARNING, _INFO = Severity.WARNING, Severity.INFO


@dataclass(frozen=True)
class Scenario:
    """One fault of a suite.

    Attributes:
        names: ids of which one must be reported.
        first, until: steps between which the onset may lie.
        least: severity that it must have.
    """

    names: tuple[str, ...]
    first: int
    until: int
    least: Severity = _WARNING


@dataclass(frozen=True)
class Suite:
    """A program with ground truth.

    Attributes:
        package: what to install.
        generator: Python code that writes runs to the folder argv[1], of argv[2] seeds.
        file: what to scan in a run's folder; empty where the run is one file.
    """

    name: str
    package: str
    variable: str
    generator: str
    seeds: int
    file: str
    scenarios: dict[str, Scenario]


def _drifts(*names: str, until: int = 133, least: Severity = _WARNING) -> Scenario:
    return Scenario(names, 0, until, least)


def _halfway(*names: str) -> Scenario:
    return Scenario(names, 250, 333)


_RLDOCTOR = """
import json, sys
from rl_doctor.simulate import SCENARIOS, simulate
for name in SCENARIOS:
    for seed in range(int(sys.argv[2]) * (10 if name == "healthy" else 1)):
        rows, _ = simulate(name, seed=seed)
        with open(f"{sys.argv[1]}/{name}-{seed}.jsonl", "w") as out:
            out.writelines(json.dumps(row) + "\\n" for row in rows)
"""
_RLPROBE = """
import os, sys
from rlprobe.testing.synth import PATHOLOGIES, generate_run
for name in (None, *PATHOLOGIES):
    for seed in range(int(sys.argv[2]) * (1 if name else 10)):
        folder = f"{sys.argv[1]}/{name or 'healthy'}-{seed}"
        if not os.path.exists(folder):
            generate_run(folder, name, seed=seed)
"""

SUITES = (
    Suite(
        "rldoctor 0.2.0",
        "rldoctor==0.2.0",
        "RLDOCTOR_PYTHON",
        _RLDOCTOR,
        3,
        "",
        {
            "entropy_collapse": _drifts("ENTROPY_COLLAPSE"),
            # the task is learnt: worth knowing only
            "saturated_groups": _drifts("ZERO_VARIANCE", until=200, least=_INFO),
            "too_hard": _drifts("ZERO_VARIANCE", "NO_LEARNING", "DEAD_GRADIENT"),
            # the evaluation turns at a third of the run
            "reward_hacking": _drifts("REWARD_HACKING", until=222),
            "length_hacking": _drifts("LENGTH_EXPLOSION", "REWARD_HACKING"),
            "truncation": _drifts("TRUNCATION", "LENGTH_EXPLOSION"),
            "kl_blowup": _drifts("KL_BLOWUP"),
            "clip_saturation": _drifts("CLIP_SATURATION"),
            "grad_spikes": _drifts("GRAD_PATHOLOGY", until=399),  # anywhere in the run
            # learning that ends at 0.55 harms nothing
            "plateau": _drifts("NO_LEARNING", "REWARD_PLATEAU", least=_INFO),
            "format_domination": _drifts("FORMAT_GAMING"),
        },
    ),
    Suite(
        "rlprobe 0.1.0",
        "rlprobe==0.1.0",
        "RLPROBE_0_1_PYTHON",
        _RLPROBE,
        2,
        "steps.parquet",
        {
            "kl_blowup": _halfway("KL_BLOWUP"),
            "entropy_collapse": _halfway("ENTROPY_COLLAPSE"),
            "reward_hack_length": _halfway("LENGTH_EXPLOSION", "REWARD_HACKING"),
            "format_gaming": _halfway("FORMAT_GAMING"),
            "clip_saturation": _halfway("CLIP_SATURATION"),
            "degenerate_groups": _halfway("ZERO_VARIANCE"),
            "adv_collapse": _halfway(
                "ADVANTAGE_NOISE", "ADVANTAGE_COLLAPSE", "ZERO_VARIANCE", "NO_LEARNING"
            ),
            "value_divergence": _halfway("VALUE_DIVERGENCE"),
            "grad_pathology": _halfway("GRAD_PATHOLOGY"),
            "truncation_starve": _halfway("TRUNCATION"),
            "repetition_spiral": _halfway("REPETITION_LOOP"),
            "reward_std_death": _halfway("ZERO_VARIANCE", "REWARD_COLLAPSE"),
            "ref_drift_asymmetry": _halfway("KL_BLOWUP"),
            "throughput_rot": _halfway("THROUGHPUT_ROT"),
        },
    ),
)


@dataclass(frozen=True)
class Result:
    """What was said about one run of a suite."""

    suite: str
    scenario: str
    run: str
    right: bool
    early: bool
    said: str


def main() -> None:
    given = _arguments()
    out = given.out or Path(tempfile.mkdtemp(prefix="suites-"))
    results = []
    for suite in SUITES:
        python = getattr(given, suite.variable.lower()) or os.environ.get(suite.variable)
        runs = generated(suite, out / suite.package.replace("==", "-"), python, given.environments)
        results += [judged(suite, path) for path in runs]
    print(table(results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.suites")
    parser.add_argument("--out", type=Path, help="keep the runs here, and use those already there")
    parser.add_argument("--rldoctor", dest="rldoctor_python", help="a Python that has rldoctor")
    parser.add_argument("--rlprobe-0-1", dest="rlprobe_0_1_python", help="one with rlprobe 0.1.0")
    parser.add_argument(
        "--environments", type=Path, default=Path(sys.prefix) / "suites", help="where to install"
    )
    return parser.parse_args()


def generated(suite: Suite, out: Path, python: str | None, environments: Path) -> list[Path]:
    """The runs of a suite, by name; generated unless they are there."""
    if not out.exists():
        out.mkdir(parents=True)
        chosen = python or _environment(suite, environments)
        command = [chosen, "-c", suite.generator, str(out), str(suite.seeds)]
        subprocess.run(command, check=True, timeout=600, cwd=out)
    return sorted(out.iterdir())


def _environment(suite: Suite, environments: Path) -> str:
    """A Python with the program, installed from the package index."""
    folder = environments / suite.package.replace("==", "-")
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", suite.package]
        subprocess.run(install, check=True, timeout=1200)
    return str(python)


def judged(suite: Suite, path: Path) -> Result:
    """Scan one run and hold it against its name."""
    run = path.name.removesuffix(".jsonl")
    name = run.rpartition("-")[0]
    source = path / suite.file if suite.file else path
    findings = [finding for item in open_runs(source) for finding in scan(item).findings]
    loud = [finding for finding in findings if finding.severity >= _WARNING]
    if name == HEALTHY:
        return Result(suite.name, name, run, not loud, bool(loud), _said(loud))
    scenario = suite.scenarios[name]
    first = scenario.first - SLACK
    early = [finding for finding in loud if finding.first_bad_step < first]
    hits = list(_hits(scenario, findings, first))
    return Result(suite.name, name, run, bool(hits), bool(early), _said(hits or loud))


def _hits(scenario: Scenario, findings: Sequence[Finding], first: int) -> Iterator[Finding]:
    for finding in findings:
        timely = first <= finding.first_bad_step <= scenario.until
        if timely and finding.detector in scenario.names and finding.severity >= scenario.least:
            yield finding


def _said(findings: Sequence[Finding]) -> str:
    return ", ".join(f"{item.detector}@{item.first_bad_step}" for item in findings)


def table(results: Sequence[Result]) -> str:
    """What is not as it should be, run by run, then the figures of each suite."""
    wrong = [item for item in results if item.early or not item.right]
    lines = ["| suite | run | said |", "|---|---|---|"]
    lines += [f"| {item.suite} | {item.run} | {item.said or 'nothing'} |" for item in wrong]
    lines += ["", "| suite | faults found | alarms before a fault | healthy runs alarmed |"]
    lines += ["|---|---|---|---|"]
    for suite in dict.fromkeys(item.suite for item in results):
        own = [item for item in results if item.suite == suite]
        faulty = [item for item in own if item.scenario != HEALTHY]
        healthy = [item for item in own if item.scenario == HEALTHY]
        found, early = sum(item.right for item in faulty), sum(item.early for item in faulty)
        alarmed = sum(item.early for item in healthy)
        lines.append(
            f"| {suite} | {found}/{len(faulty)} | {early}/{len(faulty)} "
            f"| {alarmed}/{len(healthy)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
