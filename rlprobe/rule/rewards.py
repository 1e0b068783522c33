"""What the parts of a reward are for, and what a run has learnt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import RunContext
from rlprobe.findings import Evidence
from rlprobe.rule.levels import Levels
from rlprobe.rule.signals import Signal
from rlprobe.values import FloatArray

Values = Mapping[str, FloatArray]

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


@dataclass(frozen=True, slots=True)
class Sides:
    """The reward for the task and the reward that was meant as help, one entry per row.

    Attributes:
        task, auxiliary: the sums of their components.
        task_names, auxiliary_names: the components of each.
    """

    task: Signal
    auxiliary: FloatArray
    task_names: Sequence[str]
    auxiliary_names: Sequence[str]

    @property
    def help(self) -> Signal:
        """The auxiliary reward as a signal."""
        return self.task.with_values(self.auxiliary)

    @classmethod
    def of(cls, run: RunContext, guess: Callable[[Values], Sequence[str]]) -> Sides | None:
        """Both sides, or None where they cannot be told apart.

        Args:
            guess: which of the components are the task where no name tells.
        """
        columns = [run.series(name) for name in run.names(COMPONENT)]
        logged = [column for column in columns if column is not None]
        if len(logged) < 2:
            return None
        steps = max((column.steps for column in logged), key=len)
        values = {column.name: stats.finite(stats.at_steps(column, steps)) for column in logged}
        task, auxiliary = sides(values)
        if not task:
            task = list(guess(values))
            auxiliary = [name for name in values if name not in task]
        if not task or not auxiliary:
            return None
        total = Signal(run, task[0], steps, _total(values, task))
        return cls(total, _total(values, auxiliary), task, auxiliary)


def sides(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Components of the task and auxiliary ones, where at least one side has telling names."""
    known = list(names)
    auxiliary = [name for name in known if is_auxiliary(name)]
    rest = [name for name in known if name not in auxiliary]
    task = [name for name in rest if is_task(name)]
    if task:
        return task, auxiliary or [name for name in rest if name not in task]
    return (rest, auxiliary) if auxiliary else ([], [])


def _total(values: Values, names: Sequence[str]) -> FloatArray:
    total: FloatArray = np.sum([values[name] for name in names], axis=0)
    return total


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
    names = [name.removeprefix(COMPONENT) for name in run.names(COMPONENT)]
    task = [name for name in names if TASK.search(name.lower()) and not is_auxiliary(name)]
    parts = [Signal.logged(run, COMPONENT + name) for name in task]
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
