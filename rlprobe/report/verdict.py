"""The word of `rlprobe gate`, which every format puts beside the reports it rests on."""

from __future__ import annotations

from rlprobe.gate import GateVerdict

WORDS = {"pass": "GATE PASS", "fail": "GATE FAIL", "not_judged": "GATE NOT JUDGED"}


def reasons(judged: GateVerdict) -> list[str]:
    """Why, and what was waived: one sentence each, not yet escaped."""
    waived = [f"{root.detector} at step {root.first_bad_step:,}: waived" for root in judged.waived]
    return [*judged.reasons, *waived]
