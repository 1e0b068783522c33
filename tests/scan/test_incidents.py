"""Which finding is the root, what hangs on it, and what does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rlprobe.detector import (
    Detector,
    Event,
    Evidence,
    Finding,
    RunContext,
    Severity,
    Stage,
    State,
)
from rlprobe.findings import Incident
from rlprobe.scan.context import Context
from rlprobe.scan.incidents import incidents_of, linked_by_cause
from tests.scan.test_engine import checkpoint, run_of

WARNING, CRITICAL, INFO = Severity.WARNING, Severity.CRITICAL, Severity.INFO


def detector(name: str, *caused_by: str, stage: Stage = "outcome") -> type[Detector]:
    def scan(self: Detector, run: RunContext) -> Iterator[Finding]:
        yield from ()

    members = {"id": name, "severity": CRITICAL, "caused_by": caused_by, "scan": scan}
    members["stage"] = stage
    return type(name, (Detector,), members)


CATALOGUE = {
    item.id: item
    for item in (
        detector("FLAT", "FALL", stage="groups"),
        detector("NOISE", "FLAT", "FALL", stage="advantage"),
        detector("FALL", "NOISE", "FLAT", stage="reward"),
        detector("SPIKE", "NOISE", "FLAT", "LOSS", stage="gradient"),
        detector("LOSS", "NOISE", "SPIKE", stage="loss"),
        detector("KL", "NOISE", stage="policy"),
        detector("LONG", "KL"),
        detector("CUT", "LONG"),
        detector("NAN", "CUT"),
        detector("ADVICE", "NAN"),
    )
}


ROLLOUTS = {
    item.id: item
    for item in (
        detector("FLAT", "FALL", "CUT", "LENGTH", stage="groups"),
        detector("FALL", "FLAT", "CUT", stage="reward"),
        detector("LENGTH", "FLAT", stage="rollout"),
        detector("CUT", "LENGTH", "FLAT", stage="rollout"),
    )
}


def found(
    name: str,
    first: int,
    last: int = 200,
    severity: Severity = CRITICAL,
    state: State = "ongoing",
    summary: str = "",
    statement: str = "",
) -> Finding:
    return Finding(
        detector=name,
        severity=severity,
        confidence=0.9,
        first_bad_step=first,
        last_bad_step=last,
        state=state,
        summary=summary or f"{name} happened.",
        statement=statement,
        evidence=(Evidence("loss", first, 1.0),),
        remedies=("do something",),
    )


def told(*findings: Finding, events: tuple[Event, ...] = ()) -> list[Incident]:
    context = Context(run_of({"loss": [1.0] * 200}, events))
    linked = linked_by_cause(findings, CATALOGUE, context)
    return list(incidents_of(linked, lambda _: context))


def chain(incident: Incident) -> list[tuple[str, int]]:
    return [(link.detector, link.lead) for link in incident.chain]


def test_at_one_step_the_stage_decides_whatever_the_severity() -> None:
    (incident,) = told(
        found("LOSS", 50),
        found("FALL", 50),
        found("SPIKE", 50),
        found("NOISE", 50, severity=WARNING),
        found("FLAT", 50, severity=WARNING),
    )
    order = ["FLAT", "NOISE", "FALL", "SPIKE", "LOSS"]
    assert chain(incident) == [(name, 0) for name in order]
    assert incident.severity is CRITICAL


def along(values: list[float], metric: str, *findings: Finding) -> list[tuple[str, int]]:
    """The chain where LENGTH or CUT is seen in a metric that leaves its level at 50 by these."""
    noise = 1 + 0.03 * np.random.default_rng(0).normal(size=200)
    series = (values[0] * noise).tolist()
    series[49 : 48 + len(values)] = values[1:]
    context = Context(run_of({metric: series}))
    seen = [
        replace(f, metrics=(metric,)) if f.detector in ("LENGTH", "CUT") else f for f in findings
    ]
    (incident,) = incidents_of(linked_by_cause(seen, ROLLOUTS, context), lambda _: context)
    return chain(incident)


def test_a_drift_followed_back_into_the_noise_is_no_root() -> None:
    metric = "completion_length_mean"
    slow = [100.0, 103.0, 104.0, 112.0, 130.0, 180.0]
    assert along(slow, metric, found("LENGTH", 50), found("FLAT", 52)) == [
        ("FLAT", 0),
        ("LENGTH", -2),
    ]
    assert along(slow, metric, found("LENGTH", 50), found("FLAT", 50)) == [
        ("FLAT", 0),
        ("LENGTH", 0),
    ]


def test_what_has_broken_when_a_cause_is_seen_is_no_effect_of_it() -> None:
    metric = "completion_length_mean"
    fast = [100.0, 130.0, 170.0, 220.0, 300.0]
    assert along(fast, metric, found("LENGTH", 50), found("FLAT", 52)) == [
        ("LENGTH", 0),
        ("FLAT", 2),
    ]
    at_once = [100.0, 300.0, 300.0, 300.0]
    assert along(at_once, metric, found("LENGTH", 50), found("FLAT", 50)) == [
        ("LENGTH", 0),
        ("FLAT", 0),
    ]


def test_what_breaks_a_row_later_comes_later() -> None:
    late = [100.0, 300.0, 300.0, 300.0]
    assert along(late, "completion_length_mean", found("FLAT", 49), found("LENGTH", 50)) == [
        ("FLAT", 0),
        ("LENGTH", 1),
    ]


def test_completions_that_are_cut_at_once_are_the_root_of_flat_groups() -> None:
    cut = [0.01, 0.4, 0.7, 0.9, 1.0]
    findings = (found("CUT", 50, severity=WARNING), found("FALL", 50), found("FLAT", 52))
    assert along(cut, "truncation_rate", *findings) == [("CUT", 0), ("FALL", 0), ("FLAT", 2)]


def test_an_effect_seen_a_row_before_its_cause_hangs_on_it() -> None:
    (incident,) = told(found("CUT", 50), found("LONG", 52))
    assert chain(incident) == [("LONG", 0), ("CUT", -2)]
    assert incident.last_good_step == 49
    assert "2 steps earlier: CUT happened." in incident.story
    assert len(told(found("CUT", 50), found("LONG", 53))) == 2


def test_what_recovered_long_before_is_no_cause() -> None:
    apart = told(found("LONG", 40, 60, state="recovered"), found("CUT", 100))
    assert [item.chain[0].detector for item in apart] == ["LONG", "CUT"]
    assert len(told(found("LONG", 40, 80, state="recovered"), found("CUT", 100))) == 1


def test_what_was_there_from_the_start_explains_no_late_disaster() -> None:
    assert len(told(found("LONG", 1, severity=WARNING), found("CUT", 180))) == 2
    assert len(told(found("LONG", 60, severity=WARNING), found("CUT", 180))) == 1
    assert len(told(found("KL", 60), found("NAN", 180))) == 2, "only through what was not seen"
    assert len(told(found("KL", 100), found("NAN", 180))) == 1


def test_info_is_neither_cause_nor_hung_on_something_distant() -> None:
    first, second = told(found("LONG", 50, severity=INFO), found("CUT", 60))
    assert (first.chain[0].detector, first.severity) == ("CUT", CRITICAL)
    assert (second.chain[0].detector, second.severity) == ("LONG", INFO)
    assert len(told(found("KL", 50), found("CUT", 60, severity=INFO))) == 2
    assert len(told(found("LONG", 50), found("CUT", 60, severity=INFO))) == 1


def test_advice_comes_after_the_disaster_it_belongs_to() -> None:
    (incident,) = told(found("NAN", 150), found("ADVICE", 150, severity=WARNING))
    assert chain(incident) == [("NAN", 0), ("ADVICE", 0)]


def test_the_story_names_what_came_before_and_what_the_checkpoint_lacks() -> None:
    events = (
        checkpoint(40, lacks=["optimizer"]),
        Event("curriculum_changed", 45, message="hard prompts"),
    )
    (incident,) = told(
        found("KL", 50, summary="From step 50 on.", statement="KL left its range; it stays."),
        found("LONG", 54, statement="Length doubled; the cap is near."),
        events=events,
    )
    assert incident.story == (
        "From step 50: KL left its range; it stays. "
        "Shortly before, at step 45: curriculum changed (hard prompts). "
        "4 steps later: Length doubled. "
        "The last good step is 49. "
        "Go back to the checkpoint of step 40 (ckpt-40); it lacks optimizer. "
        "Before going on: do something."
    )


def test_a_quoted_line_is_told_as_it_is() -> None:
    """A story leaves out the step of a finding, and nothing of what a finding quotes."""
    quoted = "The run died: lost all ranks after step 12 of the barrier."
    (incident,) = told(found("KL", 50, summary=quoted, statement=quoted))
    assert quoted in incident.story
