"""What the parts of a reward are for, and what a run has learnt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import RunContext
from rlprobe.findings import Evidence
from rlprobe.rule.levels import Levels
from rlprobe.rule.rollouts import groups, unpicked
from rlprobe.rule.signals import Signal
from rlprobe.values import FloatArray, IntArray, Rollout

COMPONENT = "reward_component/"
EVALUATIONS = ("eval/accuracy", "eval/pass_rate", "eval/score_mean", "eval/reward_mean")
LEAST_EVALUATIONS = 4
AUXILIARY = re.compile(
    r"format|fmt|tag|xml|think|length|(^|_)len($|_)|brevity|short|concise|repet|lang|style|steps"
    r"|structure|soft|strict|(^|_)int(_|$)|penalty|json|count|boxed|cosine"
)
TASK = re.compile(
    r"acc|correct|answer|exact|verif|task|solve|pass|test|math|code|outcome|(^|_)f1|goal|win|judge"
)
LEARNT = 0.3  # part of all that a reward ever moved by, that is worth the name
OF_TRAINING = 0.2  # part of the gain in training, or of the room, that an evaluation must gain
SURE = 2.0  # times the scatter of evaluations, that a gain is more than


@dataclass(frozen=True, slots=True)
class Learnt:
    """What the task gained while something else changed.

    Attributes:
        metric: the best measure of it that is logged.
        before, now: its level before, and at the end.
        enough: whether the gain is a good part of what the run ever gained.
    """

    metric: str
    before: float
    now: float
    enough: bool

    def evidence(self) -> Evidence:
        """Its level at the end against the level before."""
        note = "level at the end, against before"
        return Evidence(self.metric, None, self.now, self.before, note=note)


def learnt_since(run: RunContext, step: int) -> Learnt | None:
    """What was learnt from a step on, by the evaluation, the task's own reward, or the mean reward.

    The first of them that is logged tells; None where nothing tells.
    """
    training = _training(run)
    levels = None if training is None else Levels.of(training)
    for name in EVALUATIONS:
        score = Signal.logged(run, name)
        if score is not None and len(score) >= LEAST_EVALUATIONS:
            return _by_evaluation(score, step, levels)
    if levels is None:
        return None
    row = int(np.searchsorted(levels.signal.steps, step))
    before, now = levels.before(row), levels.now
    enough = now - before >= max(LEARNT * levels.extent, SURE * levels.noise)
    return Learnt(levels.signal.metric, before, now, enough)


def _training(run: RunContext) -> Signal | None:
    """The reward for the task: the component whose name tells it, else the mean reward."""
    parts = [Signal.logged(run, name) for name in task_components(run)]
    long = [part for part in parts if part is not None and len(part)]
    best = max(long, key=len, default=None)
    whole = best if best is not None else Signal.logged(run, "reward_mean")
    return whole if whole is not None and len(whole) else None


def _by_evaluation(score: Signal, step: int, training: Levels | None) -> Learnt:
    earlier = score.values[score.steps <= step]
    quarter = max(2, len(score) // 4)
    before = stats.median(earlier[-3:] if len(earlier) else score.values[:1])
    now = stats.median(score.values[-quarter:])
    scale = [OF_TRAINING * _room(score, before)]
    if training is not None:
        row = int(np.searchsorted(training.signal.steps, step))
        scale.append(OF_TRAINING * abs(training.now - training.before(row)))
    gain = now - before
    enough = gain > SURE * stats.noise(score.values) and gain >= min(scale)
    return Learnt(score.metric, before, now, bool(enough))


def _room(score: Signal, level: float) -> float:
    """How much an evaluation could still gain: up to 1, or 100 where it is given in percent."""
    top = float(score.values.max())
    return next((full - level for full in (1.0, 100.0) if top <= full), abs(level))


def is_auxiliary(name: str) -> bool:
    """Whether a component is a help (format, length, language), by its name."""
    return AUXILIARY.search(name.removeprefix(COMPONENT).lower()) is not None


def is_task(name: str) -> bool:
    """Whether a component pays for the task, by its name."""
    return TASK.search(name.removeprefix(COMPONENT).lower()) is not None


def task_components(run: RunContext) -> list[str]:
    """Logged components that pay for the task and are no help, by their names."""
    return [name for name in run.names(COMPONENT) if is_task(name) and not is_auxiliary(name)]


def sides(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Components of the task and auxiliary ones, where at least one side has telling names."""
    every = list(names)
    auxiliary = [name for name in every if is_auxiliary(name)]
    rest = [name for name in every if name not in auxiliary]
    task = [name for name in rest if is_task(name)]
    if task:
        return task, auxiliary or [name for name in rest if name not in task]
    return (rest, auxiliary) if auxiliary else ([], [])


@dataclass(frozen=True, slots=True)
class Earned:
    """What the rollouts of a recorded step earned, one entry per rollout.

    Attributes:
        group: the number of each one's group.
        task, auxiliary: the two sides of its reward.
    """

    rollouts: Sequence[Rollout]
    group: IntArray
    task: FloatArray
    auxiliary: FloatArray

    @classmethod
    def at(cls, run: RunContext, step: int) -> Earned | None:
        """By the two sides of the rewards; None where they cannot be told apart."""
        by_group = [
            group
            for group in groups(unpicked(run.rollouts(step))).values()
            if len(group) > 1 and all(item.reward_components for item in group)
        ]
        members = [item for group in by_group for item in group]
        task, auxiliary = sides(dict.fromkeys(key for i in members for key in i.reward_components))
        if len(by_group) < 2 or not task or not auxiliary:
            return None
        both = [
            np.array(
                [sum(item.reward_components.get(key, 0.0) for key in keys) for item in members]
            )
            for keys in (task, auxiliary)
        ]
        numbers = np.repeat(np.arange(len(by_group)), [len(group) for group in by_group])
        return cls(members, numbers, *both) if np.isfinite(both).all() else None
