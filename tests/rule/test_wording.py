"""An episode in words: the summary with its step, the statement of a story without."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlprobe import catalog
from rlprobe.detector import Evidence, Finding, Severity
from rlprobe.rule import SINCE, Moment, Period, after, finding, listed, restore, stretch_from
from rlprobe.rule.signals import Signal
from rlprobe.rule.wording import Episode
from rlprobe.scan.context import Context
from rlprobe.testing import run_of

DETECTOR = catalog.get("RANK_SILENT")()
RUN = Context(run_of({"name": "run", "columns": {"loss": [1.0] * 2000}}))
ENDED = Context(
    run_of(
        {
            "name": "run",
            "rows": 9,
            "columns": {"loss": [1.0]},
            "attempts": [{"number": 1, "ended": "crashed"}],
        }
    )
)


def words(sentence: str, episode: Episode | None = None) -> Finding:
    period = Period(RUN, 1234, 1300, recovered=True)
    return finding(DETECTOR, episode or period, sentence, evidence=(), remedies=())


@pytest.mark.parametrize(
    ("sentence", "summary", "statement"),
    [
        (f"It fell{SINCE}.", "It fell from step 1,234 on.", "It fell."),
        (
            f"It fell,{SINCE}, by half.",
            "It fell, from step 1,234 on, by half.",
            "It fell, by half.",
        ),
        (
            f"Rank 3 went silent{after(99)} and died{SINCE}.",
            "Rank 3 went silent after step 99 and died from step 1,234 on.",
            "Rank 3 went silent and died.",
        ),
        ("From step 7 on, 3 of 4.", "From step 7 on, 3 of 4.", "From step 7 on, 3 of 4."),
        ("", "", ""),
    ],
)
def test_a_story_leaves_out_the_step_that_it_gives(
    sentence: str, summary: str, statement: str
) -> None:
    said = words(sentence)
    assert (said.summary, said.statement) == (summary, statement)


def test_what_somebody_else_wrote_stays_as_it_is() -> None:
    quoted = "died: loss is nan after step 40"
    assert words(f"The run{after(41)} {quoted}.").statement == f"The run {quoted}."


@given(st.lists(st.sampled_from([SINCE, after(7), "a", " b", ",", ".", " from step 3 on"])))
def test_no_marker_is_left_and_a_statement_is_part_of_its_summary(parts: list[str]) -> None:
    said = words("".join(parts))
    for text in (said.summary, said.statement):
        assert not re.search("[\ue000-\uf8ff]", text)
    rest = iter(said.summary)
    assert all(letter in rest for letter in said.statement)


def test_a_finding_takes_id_steps_and_state_from_its_episode() -> None:
    passed = words("It fell.", Period(RUN, 4, 9, recovered=True, metrics=("loss",)))
    assert (passed.detector, passed.first_bad_step, passed.last_bad_step) == ("RANK_SILENT", 4, 9)
    assert (passed.state, passed.metrics) == ("recovered", ("loss",))
    ongoing = words("It fell.", Period(RUN, 4, 9, recovered=False))
    assert (ongoing.last_bad_step, ongoing.state) == (2000, "ongoing")
    assert words("It fell.", Period(ENDED, 4, 5, recovered=False)).state == "ended_run"
    stretch = stretch_from(Signal.of(RUN, "loss"), 3, 5)
    assert words("It fell.", stretch).metrics == ("loss",)
    crash = words("It died.", Moment(17, "ended_run"))
    assert (crash.first_bad_step, crash.last_bad_step, crash.state) == (17, 17, "ended_run")


def test_what_is_missing_is_left_out_and_the_rest_has_defaults() -> None:
    evidence = Evidence("loss", 4, 1.0)
    short = finding(
        DETECTOR,
        Period(RUN, 4, 9, recovered=True, metrics=("loss",)),
        "It fell.",
        evidence=(None, evidence, None),
        remedies=("", "restart", ""),
        metrics=("entropy",),
        ranks=[3],
    )
    assert (short.evidence, short.remedies, short.ranks) == ((evidence,), ("restart",), (3,))
    assert (short.severity, short.variant) == (Severity.CRITICAL, None)
    assert short.metrics == ("entropy",)
    mild = dataclasses.replace(short, severity=Severity.INFO)
    assert mild.key == short.key == "RANK_SILENT@4/entropy"


def test_names_beyond_the_first_few_are_counted() -> None:
    assert listed([3]) == "3"
    assert listed([1, 2, 3, 4]) == "1, 2, 3, 4"
    assert listed(list(range(6))) == "0, 1, 2, 3 and 2 more"
    assert listed(list(range(9)), 8).endswith("7 and 1 more")
    assert restore(1000) == "restore a checkpoint from before step 1,000"
