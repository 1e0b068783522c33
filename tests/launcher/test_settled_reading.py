"""Logs of all families and shapes, fed as output comes: in the end what a scan of them has."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from rlprobe.errors import InputError
from rlprobe.importers import open_runs
from rlprobe.launcher import settling
from rlprobe.launcher.output import Lines, OutputRows
from rlprobe.store.frame import Frame
from rlprobe.store.run import Run
from tests.importers import families, families_classic, families_rl, shapes

FAMILIES = {**families.FAMILIES, **families_rl.FAMILIES, **families_classic.FAMILIES}


def columns(frame: Frame) -> dict[str, Any]:
    return {
        f"{name} of {rank}": (one.steps.tolist(), list(map(repr, one.values.tolist())))
        for name in frame.names
        for rank, one in frame.series_by_rank(name).items()
    }


def facts(run: Run) -> dict[str, Any]:
    """All that is told of a run."""
    return {
        "steps": columns(run.steps),
        "ranks": columns(run.ranks),
        "launches": list(zip(run.steps.attempt.tolist(), run.steps.step.tolist(), strict=True)),
        "events": [(one.kind, one.step, one.rank, one.attempt, one.message) for one in run.events],
        "notes": run.info.notes,
        "unread": run.info.unread,
        "unmapped": run.info.unmapped,
        "framework": run.info.framework,
    }


def settled(text: str, seed: int) -> Run | None:
    """What the launcher has in the end of output that comes in pieces of any size."""
    rng = random.Random(seed)
    output = OutputRows(lambda step, row: None, lambda: True)
    lines = Lines(output.read)
    data = text.encode()
    while data:
        size = rng.choice((1, 7, 50, 400, 3_000, 100_000))
        lines.feed(1, data[:size])
        data = data[size:]
        if rng.random() < 0.3:
            lines.flush()
    lines.finish()
    output.finish()
    return output.settled


@pytest.fixture(params=["kept", "gathered"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the output is short enough to be kept, or is gone through as it comes."""
    if request.param == "gathered":
        monkeypatch.setattr(settling, "_MOST_BYTES", 0)
    return bool(request.param == "kept")


def is_console(runs: list[Run]) -> bool:
    return len(runs) == 1 and runs[0].info.source == "console"


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_family_of_logs(name: str, kept: bool, tmp_path: Path) -> None:
    sample = FAMILIES[name]()
    log = tmp_path / sample.file
    log.write_text(sample.text)
    runs = open_runs(log)
    if not is_console(runs):
        pytest.skip("no output of a command")
    del kept
    run = settled(sample.text, seed=0)
    assert run is not None
    assert facts(run) == facts(runs[0])


@pytest.mark.parametrize("seed", range(40))
def test_shapes_of_lines(seed: int, kept: bool, tmp_path: Path) -> None:
    log = shapes.log(random.Random(seed))
    if "wrap" in log.decorations and not kept:
        pytest.skip("the width of a terminal is told by the whole of its first lines")
    path = tmp_path / "train.log"
    path.write_bytes(log.text.encode())
    try:
        runs = open_runs(path)
    except InputError:
        runs = []
    if runs and not (is_console(runs) or (kept and len(runs) == 1)):
        pytest.skip("several trainings, or another format")
    run = settled(log.text, seed)
    assert (run is not None) == bool(runs)
    if run is not None:
        assert facts(run) == facts(runs[0])


def test_a_fault_in_going_through_it_again_costs_the_recording_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(settling.Settling, "_kept_runs", fails)
    rows: list[int] = []
    output = OutputRows(lambda step, row: rows.append(step), lambda: True)
    output.read(b"step 1 | loss 0.5\nstep 2 | loss 0.4\n")
    output.finish()
    assert rows == [1, 2]
    assert output.settled is None
    assert "the output could not be gone through again: no room" in output.notes()
