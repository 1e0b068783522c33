"""Calls that do not fit: nothing raises, what can be kept is, and what is dropped is on screen."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlprobe import Recorder
from rlprobe.store.recording import Recording

Screen = Callable[..., str]
CALLS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "a fractional step": (
        lambda r: r.step(2.5, loss=1.0),
        "'2.5' is no step",
        "1 steps rows without a step",
    ),
    "a fractional step of rollouts": (
        lambda r: r.samples(2.5, prompts=["p"], completions=["a", "b"]),
        "'2.5' is no step",
        "2 samples rows without a step",
    ),
    "no step": (lambda r: r.step(loss=1.0), "is no step", "1 steps rows without a step"),
    "a mapping without a step": (
        lambda r: r.step({"loss": 1.0}),
        "is no step",
        "1 steps rows without a step",
    ),
    "a mapping as the value of a metric": (
        lambda r: r.step(2, rewards={"format": 1.0}),
        "metric 'rewards' is no number",
        "1 values that are no numbers",
    ),
    "something beside the step": (
        lambda r: r.step(2, 0.25, loss=1.0),
        "could not record steps with '0.25': no such argument",
        "1 arguments left out",
    ),
    "an unknown argument of samples": (
        lambda r: r.samples(2, prompts=["p"], completions=["a"], returns=[1.0]),
        "could not record samples with 'returns': no such argument",
        "1 arguments left out",
    ),
    "fewer rewards than completions": (
        lambda r: r.samples(2, prompts=["p"], completions=["a", "b"], rewards=[1.0]),
        "rewards of rollouts: a value cannot be kept, or there are not as many as completions",
        "1 rollout values left out",
    ),
    "completions that do not make whole groups": (
        lambda r: r.samples(2, prompts=["p"] * 3, completions=list("abc"), group_size=2),
        "group_size of rollouts",
        "1 rollout values left out",
    ),
    "samples without completions": (
        lambda r: r.samples(2, prompts=["p"]),
        "could not record samples: TypeError",
        "1 record samples failures",
    ),
    "an event without a kind": (
        lambda r: r.event(),
        "could not record events: TypeError",
        "1 record events failures",
    ),
    "a checkpoint without a path": (
        lambda r: r.checkpoint(3),
        "could not record events: TypeError",
        "1 record events failures",
    ),
    "an end that is none": (lambda r: r.close("failed"), "'failed' is no status", "1 close fail"),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_is_said_once_and_shown(name: str, tmp_path: Path, screen: Screen) -> None:
    call, warning, counted = CALLS[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Recorder(tmp_path) as recorder:
            recorder.step(1, loss=1.0)
            assert not call(recorder)
    said = [str(item.message) for item in caught if warning in str(item.message)]
    assert len(said) == 1, [str(item.message) for item in caught]
    seen = " ".join(screen("scan", tmp_path).split())
    assert f"Recorder: {counted}" in seen, seen
    assert Recording(tmp_path).steps.load("loss")[0][0] == 1.0


def test_every_odd_call_is_counted_and_warned_of_once(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Recorder(tmp_path) as recorder:
            for step in range(50):
                recorder.step(step + 0.5, loss=1.0)  # type: ignore[arg-type]
    assert len(caught) == 1
    assert Recording(tmp_path).info.health == "50 steps rows without a step"


MAPPINGS: dict[str, Callable[[Any], Any]] = {
    "beside the step": lambda r: r.step(3, {"loss": 0.5, "lr": 1e-5}),
    "with its step": lambda r: r.step({"step": 3, "loss": 0.5, "lr": 1e-5}),
    "and keywords": lambda r: r.step(3, {"loss": 0.5}, lr=1e-5),
    "keywords count": lambda r: r.step(3, {"loss": 7.0, "lr": 1e-5}, loss=0.5),
    "of arrays": lambda r: r.step(np.int64(3), {"loss": np.float32(0.5), "lr": np.array(1e-5)}),
}


@pytest.mark.parametrize("name", MAPPINGS)
def test_a_mapping_of_metrics_is_recorded(name: str, tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        MAPPINGS[name](recorder)
    recording = Recording(tmp_path)
    assert recording.steps.step.tolist() == [3]
    assert recording.steps.load("loss")[0].tolist() == [0.5]
    assert recording.steps.load("lr")[0].tolist() == [1e-5]
    assert recording.info.health == ""


def test_mappings_for_ranks_events_and_rollouts(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        anything: Any = recorder
        anything.rank_step(1, {"step_time": 2.0})
        anything.event("curriculum_changed", "harder", {"level": 3})
        anything.samples(1, {"prompts": ["p"], "completions": ["a"], "rewards": [1.0]})
    recording = Recording(tmp_path)
    assert recording.ranks.load("step_time")[0].tolist() == [2.0]
    assert [event.data for event in recording.events if event.kind == "curriculum_changed"] == [
        {"level": 3}
    ]
    assert [item.reward for item in recording.rollouts(1)] == [1.0]
    assert recording.info.health == ""


# --- after the end ------------------------------------------------------------------------------

LATE = """
import sys, time
from rlprobe import Recorder
recorder = Recorder(sys.argv[1])
recorder.step(1, loss=1.0)
recorder.close()
for step in range(2, 12):
    recorder.step(step, loss=1.0)
recorder.rank_step(12, loss=1.0)
recorder.samples(12, prompts=["p"], completions=["a", "b"])
recorder.event("curriculum_changed")
"""


def test_what_comes_after_the_end_is_said_once_and_shown(tmp_path: Path, screen: Screen) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LATE, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stderr.count("rlprobe: steps are recorded after the recording was closed") == 1
    assert done.stderr.count("RuntimeWarning") == 1
    seen = " ".join(screen("scan", tmp_path).split())
    assert (
        "Recorder: 1 events rows after the end, 1 ranks rows after the end, 2 samples rows after "
        "the end, 10 steps rows after the end." in seen
    )
    recording = Recording(tmp_path)
    assert recording.steps.step.tolist() == [1]
    assert recording.info.attempts[0].ended == "completed"


def test_a_process_that_lives_on_tells_of_it_at_once(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.close()
    with pytest.warns(RuntimeWarning, match="after the recording was closed"):
        recorder.step(1, loss=1.0)
    deadline = time.monotonic() + 10
    while Recording(tmp_path).info.health != "1 steps rows after the end":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_other_ranks_may_go_on(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recorder = Recorder(tmp_path, rank=1, world_size=2, launch="a")
        recorder.step(1, loss=1.0)
        recorder.close()
