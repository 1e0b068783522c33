"""What `rlprobe record` makes of messages in the output: events, counted, at their steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rlprobe.importers import open_runs
from rlprobe.importers.console.messages import messages
from rlprobe.launcher import messages as of_output
from rlprobe.launcher.messages import OutputMessages
from rlprobe.recorder.recorder import Recorder
from rlprobe.store import manifest
from rlprobe.store.recording import Recording

Told = tuple[str, str, int | None, dict[str, Any]]

RETRACTED = "KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_token_ratio: 0.1"
SAVED = "Saving model checkpoint to out/checkpoint-{}"
XID = "kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=5, GPU has fallen off the bus."
HUNG = (
    "[rank1]:[E606 09:09:08.17 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600017 "
    "milliseconds before timing out."
)
ENDED = "slurmstepd: error: *** JOB 7 ON n CANCELLED AT 2026-02-03T04:05:06 DUE TO TIME LIMIT ***"


def see(output: OutputMessages, line: str, step: int | None) -> None:
    message = messages().see(line)
    if message is not None:
        output.hear(message, step)


def told(lines: Sequence[tuple[str, int | None]], *, inside: bool = False) -> list[Told]:
    events: list[Told] = []
    output = OutputMessages(lambda *event: events.append(event), lambda: inside)
    for line, step in lines:
        see(output, line, step)
    output.finish()
    return events


def test_what_is_said_again_at_a_step_is_counted() -> None:
    events = told([(RETRACTED, 3)] * 4 + [(RETRACTED, 4), ("step 5 | loss 1.0", 5)])
    assert [(kind, step, data.get("count")) for kind, _, step, data in events] == [
        ("preemption", 3, 4),
        ("preemption", 4, None),
    ]


def test_the_next_step_is_the_one_that_a_message_names() -> None:
    events = told([(SAVED.format(8), 7), (SAVED.format(900), 9), (SAVED.format(12), None)])
    assert [step for _, _, step, _ in events] == [8, 9, 12]
    assert events[1][3]["named_step"] == 900


def test_what_is_recorded_from_inside_is_not_recorded_again() -> None:
    lines = [(SAVED.format(8), None), (HUNG, None), (XID, None)]
    assert [kind for kind, *_ in told(list(lines), inside=True)] == [
        "collective_timeout",
        "hardware_error",
    ]


def test_how_the_command_ends_is_told_by_the_launcher_itself() -> None:
    assert told([(ENDED, 4)]) == []


def test_events_are_bounded_and_the_rest_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_output, "_MOST", 10)
    events = told([(RETRACTED, step) for step in range(50)])
    assert [kind for kind, *_ in events] == ["preemption"] * 10 + ["messages_dropped"]
    assert "40 more" in events[-1][1]


def test_a_message_is_not_held_back_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_output, "_HELD_SECONDS", 0.0)
    events: list[Told] = []
    output = OutputMessages(lambda *event: events.append(event), lambda: False)
    see(output, XID, 1)
    see(output, RETRACTED, 1)
    assert [kind for kind, *_ in events] == ["hardware_error"]


def test_a_recording_holds_the_events_that_a_scan_of_the_log_has(tmp_path: Path) -> None:
    lines = [f"step {step} | loss 0.5 | grad_norm 0.4" for step in range(1, 6)] + [HUNG]
    recorder = Recorder(tmp_path / "run", rank=manifest.LAUNCHER_RANK, signals=False)
    output = OutputMessages(
        lambda kind, text, step, data: recorder.event(kind, text, step=step, **data), lambda: False
    )
    for step, line in enumerate(lines, start=1):
        see(output, line, min(step, 5))
    output.finish()
    recorder.close()
    path = tmp_path / "console.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (scanned,) = open_runs(path)
    recorded = Recording(tmp_path / "run")
    ((event,), (known,)) = (
        [event for event in run.events if event.kind == "collective_timeout"]
        for run in (recorded, scanned)
    )
    assert (event.step, event.data) == (known.step, known.data)
    assert known.message in event.message
