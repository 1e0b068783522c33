"""Which recorded groups tell what share of all groups is so."""

from __future__ import annotations

from rlprobe.rule import unpicked
from rlprobe.values import Rollout


def recorded(*reasons: str) -> list[Rollout]:
    return [
        Rollout(1, f"g{place}", f"s{place}", capture_reason=reason)
        for place, reason in enumerate(reasons)
    ]


def kept(*reasons: str) -> list[str]:
    return [rollout.capture_reason for rollout in unpicked(recorded(*reasons))]


def test_groups_that_were_recorded_for_what_they_show_tell_no_share() -> None:
    assert kept("widest advantages", "equal rewards", "first groups") == ["first groups"]
    assert kept("all groups", "all groups") == ["all groups", "all groups"]


def test_where_all_groups_are_there_or_no_others_all_count() -> None:
    assert kept("equal rewards", "ring:crash") == ["equal rewards", "ring:crash"]
    assert kept("widest advantages", "equal rewards") == ["widest advantages", "equal rewards"]
    assert kept("", "log") == ["", "log"]
