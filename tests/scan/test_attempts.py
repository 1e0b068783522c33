"""A run that was resumed: no attempt is judged by what came after it, and nothing vanishes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlprobe.findings import Finding, Incident, ScanReport, Severity
from rlprobe.scan.engine import scan
from rlprobe.store.frame import frame_of
from rlprobe.store.run import RunInfo
from rlprobe.store.table import TableRun
from rlprobe.values import Attempt, Event, FloatArray, Rollout, two_counters

Columns = Mapping[str, FloatArray]
ROWS = 80


def launch(
    seed: int, changes: Mapping[str, float] | None = None, rows: int = 120
) -> dict[str, FloatArray]:
    """A healthy launch from step 1 on; the metrics named are multiplied from row 60 on."""
    rng = np.random.default_rng(seed)
    columns = {
        "loss": 0.5 + 0.02 * rng.normal(size=rows),
        "grad_norm": np.exp(0.1 * rng.normal(size=rows)),
        "kl_mean": 0.05 * np.exp(0.1 * rng.normal(size=rows)),
        "reward_mean": 0.5 + 0.03 * rng.normal(size=rows),
        "entropy": 0.6 + 0.02 * rng.normal(size=rows),
    }
    for name, times in (changes or {}).items():
        columns[name][60:] *= times
    return columns


def resumed(
    *launches: tuple[int, int, Columns, str], events: Sequence[Event] = (), **more: object
) -> TableRun:
    """Launches as (first step, last step, columns, how it ended); row n is step n + 1."""
    steps, numbers, parts = [], [], []
    attempts = []
    for number, (first, last, columns, ended) in enumerate(launches, 1):
        rows = np.arange(first - 1, last)
        steps.append(rows + 1)
        numbers.append(np.full(len(rows), number))
        parts.append({name: values[rows] for name, values in columns.items()})
        attempts.append(Attempt(number, first, last, ended))
    every = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    data = {name: (values, np.ones(len(values), dtype=np.bool_)) for name, values in every.items()}
    frame = frame_of(np.concatenate(steps), data, attempt=np.concatenate(numbers))
    info = RunInfo("here", "here", "recording", attempts=tuple(attempts), records_end=True)
    started = [Event("run_started", None, attempt=number + 1) for number in range(len(launches))]
    return TableRun(info, frame, events=(*started, *events), **more)  # type: ignore[arg-type]


def harmful(report: ScanReport, attempt: int | None = None) -> dict[str, Finding]:
    return {
        item.key: item
        for item in report.findings
        if item.severity >= Severity.WARNING and attempt in (None, item.attempt)
    }


def alarms(report: ScanReport) -> list[Incident]:
    return [item for item in report.incidents if item.severity >= Severity.WARNING]


BROKEN = {"loss": float("nan"), "grad_norm": float("nan")}


@pytest.mark.parametrize("seed", range(20))
def test_an_incident_does_not_vanish_when_the_run_is_resumed(seed: int) -> None:
    broken = launch(seed, BROKEN)
    crash = Event("crash", ROWS, attempt=1, data={"kind": "nan_probabilities"})
    checkpoint = Event("checkpoint", 50, data={"path": "ckpt-50"})
    first = (1, ROWS, broken, "crashed")
    before = scan(resumed(first, events=(crash, checkpoint)))
    assert before.verdict == "fail"
    second = (51, 120, launch(seed + 100), "completed")
    after = scan(resumed(first, second, events=(crash, checkpoint)))
    assert after.verdict == "pass"
    assert set(harmful(after, 1)) == set(harmful(before))
    assert {item.resolved_by for item in harmful(after).values()} == {2}
    (old,), (new,) = alarms(before), alarms(after)
    assert (new.root, new.chain, new.last_good_step, new.restore) == (
        old.root,
        old.chain,
        old.last_good_step,
        old.restore,
    )
    assert new.restore is not None
    assert (new.severity, new.attempt, new.resolved_by) == (Severity.CRITICAL, 1, 2)
    assert new.story.endswith("Attempt 2 got past it without: resolved.")
    pictured = [item for item in after.findings if item.metrics[:1] == ("loss",)]
    assert all(np.isnan(item.excerpt.values[-1]) for item in pictured if item.excerpt)


def test_what_comes_again_is_not_resolved_and_told_of_either() -> None:
    first, second = launch(1, BROKEN), launch(2, BROKEN)
    again = scan(resumed((1, ROWS, first, "crashed"), (51, 90, second, "crashed")))
    assert again.verdict == "fail"
    assert {item.attempt for item in harmful(again).values()} == {1, 2}
    assert all(item.resolved_by is None for item in harmful(again).values())
    assert alarms(again)[0].attempt == 2, "the run as it is comes first"
    third = (51, 120, launch(3), "completed")
    resolved = scan(resumed((1, ROWS, first, "crashed"), (51, 90, second, "crashed"), third))
    assert resolved.verdict == "pass"
    assert {item.resolved_by for item in harmful(resolved).values()} == {3}


def test_what_was_not_passed_yet_is_not_resolved() -> None:
    first = (1, ROWS, launch(1, BROKEN), "crashed")
    assert scan(resumed(first, (51, 58, launch(2), "running"))).verdict == "fail"
    assert scan(resumed(first, (51, 81, launch(2), "running"))).verdict == "pass"


def test_a_crash_is_not_blamed_on_what_a_later_attempt_shows() -> None:
    worse = launch(2)
    worse["loss"][48:52] *= 40
    worse["grad_norm"][48:52] *= 40
    first = (1, 50, launch(1), "crashed")
    for begins in (41, 51):
        report = scan(resumed(first, (begins, 120, worse, "completed")))
        (crash,) = [item for item in report.findings if item.detector == "CRASH"]
        assert (crash.attempt, crash.caused_by, crash.resolved_by) == (1, None, 2)


def test_thirty_launches_that_a_scheduler_ended_are_all_resolved_but_the_last() -> None:
    columns = launch(1, rows=320)
    launches = [(10 * n + 1, 10 * n + 14, columns, "killed") for n in range(30)]
    report = scan(resumed(*launches))
    crashes = [item for item in report.findings if item.detector == "CRASH"]
    assert len(crashes) == 30
    assert [item.attempt for item in crashes if item.resolved_by is None] == [30]
    assert not two_counters(report.run.attempts)


def test_what_is_in_shared_rows_is_told_once_and_belongs_to_the_run() -> None:
    cut = launch(1)
    cut["truncation_rate"] = np.where(np.arange(120) < 20, 0.0, 0.6)
    report = scan(resumed((1, ROWS, cut, "crashed"), (51, 120, cut, "completed")))
    (episode,) = [item for item in report.findings if item.detector == "TRUNCATION"]
    assert (episode.attempt, episode.resolved_by, episode.state) == (1, None, "ongoing")
    assert report.verdict == "warn"


def test_of_many_abandoned_branches_the_older_ones_are_checked_for_facts() -> None:
    broken = launch(1, BROKEN, rows=400)
    slow = {**broken, "kl_mean": broken["kl_mean"] * np.where(np.arange(400) < 60, 1, 40)}
    launches = [(40, 80, slow, "crashed") for _ in range(15)]
    report = scan(resumed((1, 80, slow, "crashed"), *launches))
    assert report.run.notes == ("of what attempts 1 to 3 left behind, only facts were checked",)
    assert {item.attempt for item in report.findings if item.detector == "CRASH"} == set(
        range(1, 17)
    )
    blown = {item.attempt for item in report.findings if item.detector == "KL_BLOWUP"}
    assert blown == set(range(4, 17))


def test_of_two_counters_in_one_file_nothing_is_a_launch() -> None:
    columns = launch(1, rows=600)
    launches = [(n + 1, 100 * n + 100, columns, "unknown") for n in range(5)]
    report = scan(resumed(*launches))
    assert two_counters(report.run.attempts)
    assert not harmful(report)
    restarts = [Attempt(n, 50 * n + 1, 50 * n + 70) for n in range(5)]
    assert not two_counters(restarts)


def test_rollouts_of_an_abandoned_branch_are_judged_with_it() -> None:
    columns = launch(1)
    flat = [
        Rollout(step, f"g{group}", f"{step}.{group}.{n}", 1, reward=1 + n * 1e-8, advantage=3.0)
        for step in range(60, ROWS + 1)
        for group in range(4)
        for n in range(4)
    ]
    launches = [(1, ROWS, columns, "halted"), (51, 70, columns, "completed")]
    report = scan(resumed(*launches, rollouts=flat))
    noise = [item for item in report.findings if item.detector == "ADVANTAGE_NOISE"]
    assert [(item.attempt, item.first_bad_step) for item in noise] == [(1, 60)]


FAULTS: Sequence[Mapping[str, float]] = (
    {},
    BROKEN,
    {"kl_mean": 30.0},
    {"loss": 20.0, "grad_norm": 20.0},
    {"reward_mean": 0.05, "entropy": 0.02},
)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1000),
    cut=st.integers(2, 100),
    length=st.integers(1, 70),
    faults=st.tuples(st.sampled_from(FAULTS), st.sampled_from(FAULTS)),
    ended=st.sampled_from(["crashed", "completed", "killed"]),
)
def test_the_same_is_found_of_the_first_attempt_before_and_after_a_resume(
    seed: int, cut: int, length: int, faults: tuple[Mapping[str, float], ...], ended: str
) -> None:
    """What was found is still found, no milder, and nothing new is said of the first attempt."""
    first = (1, 100, launch(seed, faults[0]), ended)
    second = (cut, min(120, cut + length), launch(seed + 1, faults[1]), "completed")
    before, after = harmful(scan(resumed(first))), scan(resumed(first, second))
    now = harmful(after, 1)
    assert set(now) == set(before)
    for key, old in before.items():
        assert now[key].severity >= old.severity
        if now[key].first_bad_step >= cut:
            same = replace(now[key], resolved_by=None, caused_by=old.caused_by, evidence=())
            assert same == replace(old, evidence=())
            assert str(now[key].evidence) == str(old.evidence), "a NaN is equal to none"
    keys = {item.key: item for item in after.findings}
    assert len(keys) == len(after.findings)
    for item in after.findings:
        if item.caused_by is not None:
            assert keys[item.caused_by].attempt <= item.attempt
