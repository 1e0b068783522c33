"""FORMAT_GAMING: an auxiliary reward is earned while the task reward is not."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import (
    Detector,
    Evidence,
    Finding,
    RunContext,
    Severity,
    fixed,
    knob,
    rule,
)
from rlprobe.rule import (
    SINCE,
    Earned,
    Judged,
    Levels,
    Period,
    Sampled,
    SampledEpisode,
    Shown,
    Signal,
    Stretch,
    finding,
    known,
    number,
    sampled_steps,
    sides,
    stretch_from,
)

FAMILY = "reward_component/"
TASK_NOTE = "task reward{}: median of the episode against the median before"
AUXILIARY_NOTE = "auxiliary reward{}: median of it"
CHANGED = ", since the curriculum changed"
PAID_EMPTY = "share paid for an empty answer"
EMPTY_ANSWER = re.compile(r"<answer>\s*</answer>|\\boxed\{\s*\}|<solution>\s*</solution>")


@dataclass(frozen=True, slots=True)
class _Rewards:
    """Task and auxiliary reward, one entry per row, with the names of their components."""

    task: Signal
    auxiliary: stats.FloatArray
    task_names: Sequence[str]
    auxiliary_names: Sequence[str]

    @property
    def help(self) -> Signal:
        """The auxiliary reward as a signal."""
        return self.task.with_values(self.auxiliary)


class FormatGaming(Detector):
    """An auxiliary reward is earned while the task reward is at zero or falls.

    What it detects
        The part of the reward that was meant as help (format, tags, length, language) is earned,
        while the part for the task is at zero or has fallen, over all rollouts or in most groups;
        and full reward for an empty answer.

    Why it matters
        The total still looks fine. The policy has found what is cheap, and optimises that: the
        groups become flat, because everybody earns the same help and nobody the task.

    How it is computed
        Components are told apart by their names (format, tag, length … against accuracy, correct,
        answer …) and summed; where only one side has telling names, the others are the other side,
        and without any, the one component that dies is the task. `task_fell` is looked for where
        `task_dead` is not found, `form_alone` where neither is.

    What to do
        Pay the auxiliary reward only where the answer is right, test the verifier by hand, and read
        rollouts from the onset.

    When it is wrong
        In the first steps the format is learnt before the task: a task reward of zero that ends is
        no finding. A dead verifier looks the same; the remedy begins with testing it.

    References
        DeepSeek-AI, DeepSeek-R1 (2025), on rule-based rewards. Skalse et al., Defining and
        Characterizing Reward Hacking (2022).
    """

    id = "FORMAT_GAMING"
    severity = Severity.WARNING
    needs = ((f"{FAMILY}*",), ("samples",))
    stage = "reward"
    caused_by = (
        "ZERO_VARIANCE",
        "REWARD_COLLAPSE",
        "KL_BLOWUP",
        "ENTROPY_COLLAPSE",
        "RESTART_DISCONTINUITY",
    )

    rows: int = knob(10, "rows in a row without task reward", unit="rows", minimum=3)

    points = fixed(10, "rows that are needed, and that tell where the task reward has come to")
    earned = fixed(
        0.05, "reward, or share of the best auxiliary reward, below which none is earned"
    )
    nothing = fixed(0.02, "share of the best auxiliary reward that a dead task reward stays within")
    live = fixed(0.5, "share of its best at which the auxiliary reward is being earned")
    learnt = fixed(0.7, "share of its best that an auxiliary reward began below if it was learnt")
    lasting = fixed(30, "rows, to the end of the run, of a task reward that was never earned")
    fell = fixed(0.5, "part of its past that a fallen task reward is at most")
    rose = fixed(0.2, "of its best, by which the auxiliary reward rose meanwhile")
    blocks = fixed(8, "blocks of five rows or more that show where rewards have got to")
    climbed = fixed(0.3, "of its best, by which an auxiliary reward must have risen to be learnt")
    left = fixed(0.2, "part of that rise below which it had not begun")
    top = fixed(0.85, "part of that rise above which it is at its top")
    top_rows = fixed(30, "rows at its top, to the end of the run, without the task being learnt")
    lasting_top = fixed(100, "such rows that are a warning")
    unmoved = fixed(0.1, "part of all it ever moved, or of its level, that the task did not gain")
    solved = fixed(0.8, "task reward from which on there is little left to learn")
    empty = fixed(0.5, "share of the rollouts of a step that are paid for an empty answer")
    rollouts = fixed(4, "rollouts with a reward that a step needs")
    most = fixed(0.6, "share of the groups of a step that is most of them")
    few = fixed(0.3, "share of such groups up to which there were few")
    steps = fixed(5, "recorded steps of such groups; fewer may be hard problems by chance")
    nearly_all = fixed(0.75, "share of a group that is paid the auxiliary reward")
    rows_read = fixed(20_000, "rows, evenly spread, that tell the best of a reward")
    steps_read = fixed(60, "recorded steps that are read, evenly spread")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Rollouts first, then components."""
        yield from self._paid_empty(run)
        yield from self._farmed(run)
        rewards = self._rewards(run)
        if rewards is not None:
            rewards.task.require(self.points)
            broken = [*self._task_dead(rewards)] or [*self._task_fell(rewards)]
            yield from broken or self._form_alone(rewards)

    @rule("task_dead")
    def _task_dead(self, rewards: _Rewards) -> Iterator[Finding]:
        """At least `rows` rows in a row without task reward while the auxiliary reward is at half
        its best or more. If the task was never earned, the auxiliary reward must have been learnt,
        and the state must last to the end.
        """
        best = self._best(rewards.auxiliary)
        if not best > self.earned:
            return
        dead = np.abs(rewards.task.values) <= self.nothing * best
        paid = rewards.auxiliary >= self.live * best
        for stretch in Judged(rewards.task, dead & paid).runs(gap=1, least=self.rows):
            earned = stretch.start >= 3 and stretch.before() > self.earned * best
            if earned or self._never_earned(stretch, rewards.auxiliary, best):
                yield self._finding(rewards, stretch, "task_dead")

    def _never_earned(self, stretch: Stretch, auxiliary: stats.FloatArray, best: float) -> bool:
        """The task paid nothing in the whole run, and the help alone was learnt."""
        if stretch.recovered or len(stretch) < self.lasting:
            return False
        usual_top = stats.quantile(stretch.signal.values, 0.98)
        at_start = stats.median(auxiliary[:5])
        return bool(usual_top <= self.nothing * best and at_start < self.learnt * best)

    @rule("task_fell")
    def _task_fell(self, rewards: _Rewards) -> Iterator[Finding]:
        """The run falls into two parts by the level of the task reward: in the second it is at most
        half of what it was, and nearly always below all that was usual. The auxiliary reward rose.
        """
        task, auxiliary = rewards.task.values, rewards.auxiliary
        now = stats.median(task[-self.points :])
        if len(task) < 3 * self.points or now > self.fell * self._best(task):
            return
        cut = stats.change_point(task)
        if cut is None or not self.points <= cut <= len(task) - self.points:
            return
        before, after = task[:cut], task[cut:]
        usual = stats.median(before)
        best = abs(self._best(auxiliary))
        rose = stats.median(auxiliary[cut:]) >= stats.median(auxiliary[:cut]) + self.rose * best
        apart = stats.quantile(after, 0.9) < stats.quantile(before, 0.25)
        if usual > self.earned and not now > self.fell * usual and rose and apart:
            yield self._finding(rewards, stretch_from(rewards.task, cut), "task_fell")

    @rule("form_alone")
    def _form_alone(self, rewards: _Rewards) -> Iterator[Finding]:
        """The auxiliary reward rose to its best and stayed there for `top_rows` rows, while the
        task reward is next to nothing, or stands where it was before that. Info, and a warning from
        `lasting_top` rows on.
        """
        task, auxiliary = Levels.of(rewards.task), Levels.of(rewards.help)
        begun, now = auxiliary.beginning, auxiliary.now
        best = self._best(rewards.auxiliary)
        if len(task) < self.blocks or not now - begun >= self.climbed * best > 0:
            return
        rising = auxiliary.above(begun + self.left * (now - begun))
        at_top = auxiliary.above(begun + self.top * (now - begun))
        if rising is None or at_top is None or len(at_top) < self.top_rows:
            return
        gain = task.now - task.before(rising.start)
        nothing = task.now <= self.earned * best
        unmoved = gain <= max(self.unmoved * max(task.extent, abs(task.now)), task.noise)
        if nothing or (unmoved and task.now < self.solved):
            severity = Severity.WARNING if len(at_top) >= self.lasting_top else Severity.INFO
            yield self._finding(
                rewards, stretch_from(rewards.task, rising.start), "form_alone", severity
            )

    def _best(self, values: stats.FloatArray) -> float:
        """The level of the best rows; of a long run, every so many-th row tells it."""
        return stats.quantile(values[:: max(1, len(values) // self.rows_read)], 0.95)

    @rule("paid_empty")
    def _paid_empty(self, run: RunContext) -> Iterator[Finding]:
        """Half of the recorded rollouts of a step have an empty answer block and the best reward of
        the step, at three recorded steps or more (at all of fewer).
        """
        steps = sampled_steps(run.sample_steps(), self.steps_read)
        shown = {step: self._paid_for_nothing(run, step) for step in steps}
        bad = [step for step in steps if shown[step][0] >= self.empty]
        if not bad or len(bad) < min(3, len(steps)):
            return
        share, samples = shown[bad[0]]
        yield finding(
            self,
            Period(run, bad[0], bad[-1], recovered=bad[-1] < steps[-1]),
            f"{share:.0%} of the rollouts recorded at step {bad[0]:,} have an empty answer and "
            f"earn the best reward of the step, as on {len(bad) - 1:,} other recorded steps.",
            variant="paid_empty",
            confidence=0.9,
            evidence=(Evidence("samples", bad[0], share, self.empty, note=PAID_EMPTY),),
            remedies=(
                "make the verifier fail on an empty answer, and test it with one",
                "read the rollouts linked here",
            ),
            samples=samples[:8],
        )

    def _paid_for_nothing(self, run: RunContext, step: int) -> tuple[float, list[str]]:
        """Share of rollouts with an empty answer at the best (positive) reward, and their ids."""
        paid = [rollout for rollout in run.rollouts(step) if rollout.reward is not None]
        best = max((rollout.reward or 0.0 for rollout in paid), default=0.0)
        if len(paid) < self.rollouts or best <= 0:
            return 0.0, []
        empty = [
            rollout.sample_id
            for rollout in paid
            if rollout.reward == best and EMPTY_ANSWER.search(rollout.completion or "")
        ]
        return len(empty) / len(paid), empty

    @rule("farmed")
    def _farmed(self, run: RunContext) -> Iterator[Finding]:
        """In most of the recorded groups no answer is right and nearly all are paid the auxiliary
        reward, where that was so in few before. Most of three recorded steps in a row must be so,
        and five in all. Info where the curriculum has just changed.
        """
        earned = functools.cache(functools.partial(Earned.at, run))
        steps = sampled_steps(run.sample_steps(), self.steps_read)
        read = [step for step in map(earned, steps) if step is not None]
        if not read:
            return
        task = np.concatenate([step.task for step in read])
        top = float(np.concatenate([step.auxiliary for step in read]).max())
        none = float(task.min() + self.nothing * np.ptp(task))
        if not top > 0 or not task.max() > none:
            return
        sampled = Sampled.of(run, lambda step: self._shown(earned(step), none, self.live * top))
        usual = sampled.shares.past(above=self.few, warmup=2).level
        bad = (sampled.shares.values >= self.most) & (usual <= self.few)
        for episode in sampled.episodes(bad, self.most):
            if len(episode.shown) >= self.steps:
                yield self._by_groups(episode)

    def _shown(self, earned: Earned | None, none: float, paid: float) -> Shown | None:
        """The share of groups without a right answer that are paid all the same."""
        if earned is None:
            return None
        size = np.bincount(earned.group)
        right = np.bincount(earned.group, earned.task > none)
        helped = np.bincount(earned.group, earned.auxiliary >= paid)
        farmed = (right == 0) & (helped >= self.nearly_all * size)
        chosen = farmed[earned.group]
        bad = [item for item, there in zip(earned.rollouts, chosen, strict=True) if there]
        first = (bad or earned.rollouts)[0].group_id
        group = [item for item in earned.rollouts if item.group_id == first]
        return Shown(group[0].step, float(farmed.mean()), bad, group)

    def _by_groups(self, episode: SampledEpisode) -> Finding:
        period, before = episode.period, episode.before
        since = -1 if before is None else before.step
        changed = any(
            event.step is not None and since < event.step <= period.first
            for event in period.run.events("curriculum_changed")
        )
        return finding(
            self,
            period,
            f"In {episode.share:.0%} of the recorded groups{SINCE} no answer is right and nearly "
            f"all are paid the auxiliary reward{CHANGED if changed else ''}.",
            variant="farmed",
            severity=Severity.INFO if changed else Severity.WARNING,
            confidence=episode.confidence,
            evidence=episode.evidence("share of groups"),
            remedies=(
                "read the linked group: are its answers wrong, or does the verifier fail them?",
                "pay the auxiliary reward only where the answer is right "
                "(rlprobe.guards.gated_reward)",
                "if the data became harder: mix in easier problems, or more rollouts per prompt",
            ),
            samples=episode.samples,
        )

    def _rewards(self, run: RunContext) -> _Rewards | None:
        """The two sides of the reward, or None where they cannot be told apart."""
        columns = [run.series(name) for name in run.names(FAMILY)]
        logged = [column for column in columns if column is not None]
        if len(logged) < 2:
            return None
        steps = max((column.steps for column in logged), key=len)
        values = {column.name: stats.finite(stats.at_steps(column, steps)) for column in logged}
        task, auxiliary = self._sides(values)
        if not task or not auxiliary:
            return None
        total = Signal(run, task[0], steps, _total(values, task))
        return _Rewards(total, _total(values, auxiliary), task, auxiliary)

    def _sides(self, values: Mapping[str, stats.FloatArray]) -> tuple[list[str], list[str]]:
        """Names of the task components and of the auxiliary ones."""
        task, auxiliary = sides(values)
        if task or auxiliary:
            return task, auxiliary
        dead = [name for name in values if self._died(values[name])]
        return (dead, [name for name in values if name not in dead]) if len(dead) == 1 else ([], [])

    def _died(self, values: stats.FloatArray) -> bool:
        logged = values[np.isfinite(values)]
        before, now = logged[: -self.points], logged[-self.points :]
        return len(before) > self.points and not now.any() and stats.median(before) > self.earned

    def _finding(
        self,
        rewards: _Rewards,
        stretch: Stretch,
        variant: str,
        severity: Severity = Severity.WARNING,
    ) -> Finding:
        task, auxiliary = rewards.task_names, rewards.auxiliary_names
        rows = self.lasting if variant == "form_alone" else None
        before, usual = stretch.before(rows), stretch.usual
        paid = stats.median(rewards.auxiliary[stretch.rows])
        was = "" if math.isnan(before) else f", {number(before)} before"
        return finding(
            self,
            stretch,
            f"From step {stretch.first:,} on the auxiliary reward ({_listed(auxiliary)}) pays "
            f"{number(paid)} while the task reward ({_listed(task)}) is {number(usual)}{was}.",
            variant=variant,
            severity=severity,
            confidence=0.8 if variant == "task_dead" else 0.6,
            evidence=(
                Evidence(task[0], None, usual, known(before), note=TASK_NOTE.format(_summed(task))),
                Evidence(auxiliary[0], None, paid, note=AUXILIARY_NOTE.format(_summed(auxiliary))),
            ),
            remedies=(
                "test the verifier by hand on a right answer: does it still pass?",
                "pay the auxiliary reward only where the answer is right "
                "(rlprobe.guards.gated_reward)",
                "lower the weight of the auxiliary reward now that the format is learnt",
            ),
            metrics=(*task, *auxiliary),
        )


def _total(values: Mapping[str, stats.FloatArray], names: Sequence[str]) -> stats.FloatArray:
    total: stats.FloatArray = np.sum([values[name] for name in names], axis=0)
    return total


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name.removeprefix(FAMILY) for name in names[:3])


def _summed(names: Sequence[str]) -> str:
    """Which components a value is the sum of, if of more than the one it is told under."""
    return f" (sum of {', '.join(names)})" if len(names) > 1 else ""
