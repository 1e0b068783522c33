"""The incident that rlprobe was built for, recorded as a run would be, and told as one story.

Hard prompts come in at step 1,420. At 1,428 nearly all groups earn the format reward and nothing
else, equal up to rounding; dividing by that spread makes advantages of rounding errors. KL, length,
loss and the weights follow, and at 1,440 the run dies in a collective operation. And the other one:
one rank of 64 goes wrong while the mean looks fine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rlprobe import Recorder
from rlprobe.config import Config
from rlprobe.findings import Incident, ScanReport, Severity
from rlprobe.recorder import SamplePolicy
from rlprobe.scan.engine import scan
from rlprobe.store.recording import Recording

GROUPS, SIZE = 16, 8
CURRICULUM, ONSET, DRIFT, CAP, END = 1420, 1428, 1432, 1438, 1440
TOKENS = 16_384
FLAT = [0.1, 0.1, 0.1, 0.1, 0.10000001, 0.1, 0.09999999, 0.1]  # float32 rounding: sigma 6e-9
HEALTHY = ("loss", "grad_norm", "kl_mean", "completion_length_mean", "reward_mean", "entropy")


def _scalars(step: int, noise: np.random.Generator) -> dict[str, float]:
    def about(level: float, spread: float = 0.08) -> float:
        return float(level * np.exp(noise.normal(0, spread)))

    bad, late = step >= ONSET, step >= CAP
    drifted = step >= DRIFT
    length = TOKENS if late else about(9450) if drifted else about(3120 if bad else 2780, 0.04)
    return {
        "loss": about(12.89) if late else about(0.041),
        "grad_norm": about(142.6, 0.2) if bad else about(0.85),
        "kl_mean": about(1.84 * 1.5 ** (step - DRIFT)) if drifted else about(0.08),
        "lr": 1e-6,
        "entropy": about(0.35),
        "reward_mean": 0.1 + 0.0625 * bad if bad else float(noise.normal(0.58, 0.03)),
        "zero_variance_group_fraction": 0.875 if bad else float(noise.choice([0, 0.0625, 0.125])),
        "advantage_max": 24.7 if bad else about(2.1),
        "advantage_min": -18.4 if bad else -about(1.9),
        "reward_component/accuracy": 0.0625 if bad else float(noise.normal(0.49, 0.03)),
        "reward_component/format": 0.1,
        "completion_length_mean": float(length),
        "completion_length_max": float(min(TOKENS, 2.2 * length)),
        "truncation_rate": 0.97 if late else about(0.2) if drifted else 0.01,
        "step_time": about(30, 0.03),
    }


def _rollouts(recorder: Recorder, step: int, noise: np.random.Generator) -> None:
    bad = step >= ONSET
    rewards: list[float] = []
    advantages: list[float] = []
    texts: list[str] = []
    for group in range(GROUPS):
        flat = bad and group >= 2
        own = FLAT if flat else noise.choice([0.1, 1.1], SIZE).tolist()
        rewards += own
        wide = np.linspace(-18.4, 24.7, SIZE).tolist() if flat else [(r - 0.6) * 2 for r in own]
        advantages += wide
        loop = flat and step >= DRIFT
        texts += [_text(noise, loops=loop) for _ in own]
    recorder.samples(
        step,
        prompts=[f"{'hard' if step >= CURRICULUM else 'usual'} {step}.{i}" for i in range(GROUPS)],
        completions=texts,
        rewards=rewards,
        advantages=advantages,
        group_size=SIZE,
    )


def _text(noise: np.random.Generator, *, loops: bool) -> str:
    if loops:
        again = " ".join(noise.choice(["wait", "but", "let", "me", "check", "that", "once"], 9))
        return "<think> " + f"{again}, " * 12
    words = noise.choice(["so", "then", "we", "add", "seven", "and", "get", "the", "sum", "of"], 40)
    return f"<think> {' '.join(words)} </think> <answer> 7 </answer>"


@contextlib.contextmanager
def _recorders(run_dir: Path, ranks: int) -> Iterator[list[Recorder]]:
    """One recorder per rank, as the ranks of one launch have."""
    policy = SamplePolicy(groups=GROUPS)
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                Recorder(
                    run_dir,
                    rank=rank,
                    world_size=ranks,
                    launch="one",
                    samples=policy,
                    signals=False,
                )
            )
            for rank in range(ranks)
        ]


def record_incident(run_dir: Path, ranks: int = 8) -> None:
    """The run, from its first step to its death."""
    noise = np.random.default_rng(0)
    with _recorders(run_dir, ranks) as recorders:
        lead = recorders[0]
        settings = {"max_completion_length": TOKENS, "beta": 0.04}
        lead.describe(algorithm="GRPO", framework="trl", config=settings)
        for step in range(1, END):
            row = _scalars(step, noise)
            lead.step(step, **row)
            for recorder in recorders:
                recorder.rank_step(step, loss=float(row["loss"] * noise.normal(1, 0.02)))
            if step == CURRICULUM:
                lead.event("curriculum_changed", "16 hard prompts", step=step)
            if step >= CURRICULUM - 10 or step % 50 == 0:
                _rollouts(lead, step, noise)
            if step % 100 == 0:
                lead.checkpoint(
                    step,
                    f"checkpoint-{step}",
                    has=["model", "optimizer", "scheduler", "rng"],
                    lacks=["data_cursor"],
                )
        lead.step(END, **{name: float("nan") for name in HEALTHY if name != "entropy"})
        lead.nan_detected(END, "gradient", nan_count=7_000_000)
        lead.crash("Watchdog caught collective operation timeout: ALLREDUCE, 1200 s", step=END)


@pytest.fixture(scope="module")
def incident_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("seed") / "run"
    record_incident(run_dir)
    return run_dir


@pytest.fixture(scope="module")
def report(incident_run: Path) -> ScanReport:
    return scan(Recording(incident_run), Config())


@pytest.fixture(scope="module")
def incident(report: ScanReport) -> Incident:
    (told,) = [item for item in report.incidents if item.severity > Severity.INFO]
    return told


def test_one_incident_with_its_root_at_the_first_bad_step(
    report: ScanReport, incident: Incident
) -> None:
    root = report.finding(incident.root)
    assert root.detector in {"ZERO_VARIANCE", "ADVANTAGE_NOISE"}
    assert root.first_bad_step == ONSET
    assert incident.severity is Severity.CRITICAL
    assert incident.ended_run
    assert report.verdict == "fail"


def test_the_consequences_come_in_order_with_their_leads(incident: Incident) -> None:
    leads = {link.detector: link.lead for link in incident.chain}
    assert leads["ADVANTAGE_NOISE"] == leads["ZERO_VARIANCE"] == 0
    assert leads["KL_BLOWUP"] == DRIFT - ONSET
    assert leads["REPETITION_LOOP"] == DRIFT - ONSET
    assert abs(leads["LENGTH_EXPLOSION"] - (DRIFT - ONSET)) <= 2
    assert leads["LOSS_SPIKE"] == CAP - ONSET
    assert leads["CRASH"] == END - ONSET
    steps = [link.step for link in incident.chain]
    assert steps == sorted(steps)


def test_the_way_back(incident: Incident) -> None:
    assert incident.last_good_step == ONSET - 1
    assert incident.restore is not None
    assert incident.restore.step == 1400
    assert incident.restore.lacks == ("data_cursor",)


def test_what_is_only_worth_knowing_is_no_root_of_it(report: ScanReport) -> None:
    gap = next(item for item in report.findings if item.detector == "CHECKPOINT_GAP")
    assert gap.severity is Severity.INFO
    assert gap.caused_by is None
    assert not any(item.caused_by == gap.key for item in report.findings)


def test_the_story_is_one_paragraph_with_the_steps(incident: Incident) -> None:
    story = incident.story
    assert "\n" not in story
    assert story.startswith("From step 1,428: ")
    for part in (
        "at step 1,420: curriculum changed (16 hard prompts)",
        "4 steps later: KL to the reference model",
        "12 steps later: ",
        "The last good step is 1,427.",
        "checkpoint of step 1,400",
        "data cursor",
        "Before going on: ",
    ):
        assert part in story, part


def test_the_looping_rollouts_are_linked_beside_a_healthy_group(report: ScanReport) -> None:
    loop = next(item for item in report.findings if item.detector == "REPETITION_LOOP")
    steps = {sample.split(".")[1] for sample in loop.samples}
    assert steps == {f"s{DRIFT}", f"s{DRIFT - 1}"}
    assert len(loop.samples) == 2 * SIZE, "both groups are whole"


def test_up_to_the_hard_prompts_the_run_was_healthy(tmp_path: Path) -> None:
    noise = np.random.default_rng(1)
    with Recorder(tmp_path / "run", signals=False) as recorder:
        for step in range(1, CURRICULUM):
            recorder.step(step, **_scalars(step, noise))
            if step % 50 == 0:
                _rollouts(recorder, step, noise)
    assert scan(Recording(tmp_path / "run"), Config()).verdict == "pass"


def test_one_rank_of_64_is_named_while_the_mean_looks_fine(tmp_path: Path) -> None:
    noise = np.random.default_rng(2)
    ranks, bad_rank, bad_step = 64, 37, 90
    with _recorders(tmp_path / "run", ranks) as recorders:
        for step in range(1, 121):
            losses = 2.0 + noise.normal(0, 0.05, ranks)
            if step == bad_step:
                losses[bad_rank] = 40.0
            recorders[0].step(step, loss=float(losses.mean()))
            for recorder, loss in zip(recorders, losses, strict=True):
                recorder.rank_step(step, loss=float(loss))
    report = scan(Recording(tmp_path / "run"), Config())
    (incident,) = [item for item in report.incidents if item.severity > Severity.INFO]
    found = report.finding(incident.root)
    assert (found.detector, found.ranks, found.first_bad_step) == (
        "RANK_OUTLIER",
        (bad_rank,),
        bad_step,
    )
    means = [item for item in found.evidence if item.rank is None]
    assert means[0].value == pytest.approx(2.59, abs=0.1)
    assert means[0].baseline == pytest.approx(2.0, abs=0.05)
