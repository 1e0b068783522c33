"""`rlprobe show`: the screen and the document of one step."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlprobe import Recorder
from rlprobe.report import step_json, step_text
from rlprobe.report.reporter import Layout
from rlprobe.scan.step_view import StepView, view
from rlprobe.store.frame import Frame, frame_of
from rlprobe.store.run import RunInfo
from rlprobe.store.table import TableRun
from rlprobe.values import Event, Rollout

Golden = Callable[[str, str], None]
STEP, FIRST = 1428, 1370
EVIL = "\x1b[2J[red]\r\n\u202e\x9b\udcff"


def _steps(last: dict[str, float]) -> Frame:
    before = {
        "grad_norm": 0.85,
        "advantage_max": 2.1,
        "zero_variance_group_fraction": 0.06,
        "reward_mean": 0.58,
        "completion_length_mean": 2840.0,
        "lr": 1e-6,
        "entropy": 0.31,
        "kl_mean": 0.08,
        "tokens_seen": 4.0e9,
    }
    size = STEP - FIRST + 1
    ripple = 1 + 0.02 * np.sin(np.arange(size) * 2.399)
    steps = np.arange(FIRST, STEP + 1, dtype=np.int64)
    columns = {}
    for name, level in before.items():
        values = level * ripple
        values[-1] = last.get(name, values[-1])
        columns[name] = (values, np.ones(size, dtype=np.bool_))
    return frame_of(steps, columns, time=1_790_000_000.0 + steps.astype(np.float64) * 60)


def _group(name: str, rewards: list[float], advantages: list[float], text: str) -> list[Rollout]:
    return [
        Rollout(
            STEP,
            name,
            f"{name}-{index}",
            prompt="What is 7 x 8?",
            completion=text,
            reward=reward,
            reward_components={"accuracy": 0.0, "format": 0.1},
            advantage=advantage,
            completion_length=3410 - index,
            truncated=index == 1,
        )
        for index, (reward, advantage) in enumerate(zip(rewards, advantages, strict=True))
    ]


def _ranks() -> Frame:
    values = 0.0425 + 0.0045 * np.sin(np.arange(64))
    step = np.full(64, STEP, dtype=np.int64)
    rank = np.arange(64, dtype=np.int64)
    return frame_of(step, {"loss": (values, np.ones(64, dtype=np.bool_))}, rank=rank)


@pytest.fixture
def noisy() -> StepView:
    last = {
        "grad_norm": 142.6,
        "advantage_max": 24.7,
        "zero_variance_group_fraction": 0.875,
        "reward_mean": 0.1,
        "completion_length_mean": 3120.0,
        "kl_mean": math.nan,
        "tokens_seen": 4.1e9,
    }
    loop = "<think> Wait, let me double check that again now. " * 41
    rollouts = [
        *_group("g11", [0.1] * 5 + [1.1] * 3, [-0.77] * 5 + [1.29] * 3, "It is 56."),
        *_group("g07", [0.1] * 8, [24.7, -18.4, *[0.5] * 6], loop),
        *_group("g02", [0.1] * 8, [0.0] * 8, "It is 54."),
    ]
    events = [
        Event("checkpoint", 1400, message="checkpoint-1400"),
        Event("curriculum_changed", 1420, message="16 hard prompts"),
        Event("nan_detected", 1440),
    ]
    info = RunInfo("runs/qwen32b-grpo", "q", "recording")
    run = TableRun(info, _steps(last), ranks=_ranks(), events=events, rollouts=rollouts)
    return view(run, STEP)


def test_screen(noisy: StepView, golden: Golden) -> None:
    golden("show_noisy.txt", step_text.render(noisy, Layout()))


def test_whole_texts_and_everything(noisy: StepView) -> None:
    text = step_text.render(noisy, Layout(), samples=8, whole=True, everything=True)
    assert "    │ <think> Wait" in text
    assert (
        " ".join(text.replace("│", "").split()).count("<think> Wait, let me double check") >= 8 * 41
    )
    assert "more within" not in text
    assert "lr " in text


def test_no_samples(noisy: StepView) -> None:
    assert "rollouts of" not in step_text.render(noisy, Layout(), samples=0)


@pytest.mark.parametrize("width", [1, 60, 100])
def test_every_width(noisy: StepView, width: int) -> None:
    assert "grad_norm" in step_text.render(noisy, Layout(width=width))


def test_json_holds_everything(noisy: StepView) -> None:
    document = json.loads(step_json.render(noisy))
    metrics = {item["name"]: item for item in document["metrics"]}
    assert (metrics["kl_mean"]["value"], metrics["kl_mean"]["value_kind"]) == (None, "nan")
    assert metrics["grad_norm"]["off_kind"] == "ratio"
    assert document["groups"][0]["noise"] is True
    assert len(document["groups"][0]["rollouts"]) == 8


@pytest.fixture
def hostile() -> StepView:
    name = EVIL + "m" * 10_000
    rollout = Rollout(
        STEP,
        EVIL,
        EVIL,
        prompt=EVIL,
        completion=EVIL * 500,
        reward=math.nan,
        reward_components={EVIL: math.inf},
        advantage=-math.inf,
    )
    step = np.array([STEP], dtype=np.int64)
    run = TableRun(
        RunInfo(EVIL, EVIL, EVIL),
        frame_of(step, {name: (np.array([math.inf]), np.array([True]))}),
        ranks=frame_of(step, {name: (np.array([math.nan]), np.array([True]))}),
        events=[Event(EVIL, STEP, message=EVIL * 100)],
        rollouts=[rollout],
    )
    return view(run, STEP, rank=0)


@pytest.mark.parametrize("options", [{}, {"whole": True, "everything": True}])
@pytest.mark.parametrize("colour", [False, True])
def test_hostile_text_is_harmless(hostile: StepView, options: Any, colour: bool) -> None:
    text = step_text.render(hostile, Layout(colour=colour), **options)
    dangerous = {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs"}} - {"\n"}
    assert dangerous <= ({"\x1b"} if colour else set())
    assert "\x1b[2J" not in text
    assert "[red]" in text
    assert max(len(line) for line in text.splitlines()) < 300
    json.loads(step_json.render(hostile))


# --- without a past ------------------------------------------------------------------------------


def test_what_has_no_past_is_shown_and_not_called_usual(
    tmp_path: Path, screen: Callable[..., str]
) -> None:
    names = [f"metric_{number:02}" for number in range(30)]
    vital = {"loss": 0.1, "reward_mean": 0.5, "kl_mean": 0.01}
    with Recorder(tmp_path) as recorder:
        recorder.step(1, **dict.fromkeys(names, 1.0), **vital)
    seen = screen("show", tmp_path, "--step", 1)
    rows = [line.split() for line in seen.partition("off by")[2].splitlines()[1:]]
    assert [row[:2] for row in rows[:3]] == [
        ["loss", "0.1"],
        ["reward_mean", "0.5"],
        ["kl_mean", "0.01"],
    ]
    assert seen.count("no past") == 24
    assert "… 9 more without enough of a past to tell (--all)" in seen
    assert "usual" not in seen


def test_with_a_past_what_is_usual_is_hidden(tmp_path: Path, screen: Callable[..., str]) -> None:
    names = [f"metric_{number:02}" for number in range(30)]
    with Recorder(tmp_path) as recorder:
        for step in range(1, 21):
            recorder.step(step, **dict.fromkeys(names, 1.0), loss=1.0 if step < 20 else 9.0)
        recorder.step(21, **dict.fromkeys(names, 1.0), loss=1.0, late=3.0)
    seen = screen("show", tmp_path, "--step", 20)
    assert "… 26 more within their usual range (--all)" in seen
    late = screen("show", tmp_path, "--step", 21)
    assert late.partition("off by\n")[2].startswith("late")
    assert "within their usual range" in late
