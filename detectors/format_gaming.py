"""FORMAT_GAMING: an auxiliary reward is earned while the task reward is not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import (
    Detector,
    Evidence,
    Finding,
    Inconclusive,
    Rollout,
    RunContext,
    Series,
    Severity,
    knob,
)

FAMILY = "reward_component/"
AUXILIARY = re.compile(
    r"format|fmt|tag|xml|think|length|(^|_)len($|_)|brevity|short|concise|repet|lang|style|steps"
    r"|structure|soft|strict|(^|_)int(_|$)|penalty|json|count|boxed|cosine"
)
TASK = re.compile(
    r"acc|correct|answer|exact|verif|task|solve|pass|test|math|code|outcome|(^|_)f1|goal|win|judge"
)
EMPTY_ANSWER = re.compile(r"<answer>\s*</answer>|\\boxed\{\s*\}|<solution>\s*</solution>")
LEAST_ROWS = 10
LEAST_SAMPLES = 4
MOST_ROWS = 20_000  # rows that a level is told from
MOST_STEPS = 60  # sampled steps that are read
EARNED = 0.05  # a component below is not earned
NOTHING = 0.02  # of what the auxiliary pays: a task reward below is nothing
LIVE = 0.5  # of its own best: an auxiliary reward above is being earned
FELL = 0.5  # of its own past: a task reward below has fallen


@dataclass(frozen=True, slots=True)
class _Rewards:
    """Task and auxiliary reward, one entry per row, with the names of their components."""

    steps: stats.IntArray
    task: stats.FloatArray
    auxiliary: stats.FloatArray
    task_names: tuple[str, ...]
    auxiliary_names: tuple[str, ...]


class FormatGaming(Detector):
    """An auxiliary reward is earned while the task reward is at zero or falls.

    What it detects
        The part of the reward that was meant as help (format, tags, length, language) is earned,
        while the part for the task is at zero (`task_dead`) or has fallen to half (`task_fell`);
        and, from rollouts, full reward for an empty answer (`paid_empty`).

    Why it matters
        The total still looks fine. The policy has found what is cheap, and optimises that: the
        groups become flat, because everybody earns the same help and nobody the task.

    How it is computed
        Components are told apart by their names (format, tag, length … against accuracy, correct,
        answer …); without telling names, a component that dies while another is paid is the task.
        `task_dead`: at least `rows` rows in a row without task reward while the auxiliary reward is
        at half its best or more; if the task was never earned, the auxiliary reward must have risen
        and the state must last. `task_fell`: the auxiliary reward rose to near its best while the
        task reward fell to half of what it was, to the end of the run. `paid_empty`: half of the
        recorded rollouts of a step have an empty answer block and the best reward of the step.

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
    caused_by = ("REWARD_COLLAPSE", "KL_BLOWUP", "ENTROPY_COLLAPSE", "RESTART_DISCONTINUITY")

    rows: int = knob(10, "rows in a row without task reward", unit="rows", minimum=3)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Rollouts first, then components."""
        yield from _paid_empty(run)
        rewards = _rewards(run)
        if rewards is None:
            return
        if len(rewards.steps) < LEAST_ROWS:
            raise Inconclusive(f"{len(rewards.steps)} rows of components, needs {LEAST_ROWS}")
        found = _dead(rewards, self.rows)
        for episode in found:
            yield _finding(run, rewards, episode, "task_dead")
        if not found:
            yield from (_finding(run, rewards, item, "task_fell") for item in _fell(rewards))


# --- components -----------------------------------------------------------------------------------


def _rewards(run: RunContext) -> _Rewards | None:
    columns = {name: run.series(name) for name in run.names(FAMILY)}
    known = {name: item for name, item in columns.items() if item is not None}
    if len(known) < 2:
        return None
    steps = max((item.steps for item in known.values()), key=len)
    values = {name: _aligned(item, steps) for name, item in known.items()}
    task, auxiliary = _sorted_out(values)
    if not task or not auxiliary:
        return None
    return _Rewards(
        steps, _total(values, task), _total(values, auxiliary), tuple(task), tuple(auxiliary)
    )


def _aligned(series: Series, steps: stats.IntArray) -> stats.FloatArray:
    if series.steps is steps or np.array_equal(series.steps, steps):
        return stats.finite(series.values)
    return stats.finite(stats.at_steps(series, steps))


def _total(values: Mapping[str, stats.FloatArray], names: list[str]) -> stats.FloatArray:
    total: stats.FloatArray = np.sum([values[name] for name in names], axis=0)
    return total


def _sorted_out(values: Mapping[str, stats.FloatArray]) -> tuple[list[str], list[str]]:
    """Names of the task components and of the auxiliary ones."""
    short = {name: name.removeprefix(FAMILY).lower() for name in values}
    auxiliary = [name for name in values if AUXILIARY.search(short[name])]
    task = [name for name in values if name not in auxiliary and TASK.search(short[name])]
    rest = [name for name in values if name not in auxiliary and name not in task]
    if task:
        return task, auxiliary or rest
    if auxiliary:
        return rest, auxiliary
    dead = [name for name in values if _died(values[name])]
    return (dead, [n for n in values if n not in dead]) if len(dead) == 1 else ([], [])


def _died(values: stats.FloatArray) -> bool:
    kept = values[np.isfinite(values)]
    tail = kept[-LEAST_ROWS:]
    return len(kept) > 2 * LEAST_ROWS and not tail.any() and stats.median(kept[:-10]) > EARNED


def _dead(rewards: _Rewards, rows: int) -> list[stats.Episode]:
    """Stretches in which the auxiliary reward is paid and the task reward is nothing."""
    best = _upper(rewards.auxiliary)
    if not best > EARNED:
        return []
    nothing = np.abs(rewards.task) <= NOTHING * best
    mask = nothing & (rewards.auxiliary >= LIVE * best)
    found = []
    for episode in stats.episodes(mask, gap=1, least=rows):
        before = stats.median(rewards.task[: episode.start])
        earned = episode.start >= 3 and before > EARNED * best
        if earned or _never_earned(rewards, episode, best):
            found.append(episode)
    return found


def _never_earned(rewards: _Rewards, episode: stats.Episode, best: float) -> bool:
    """The task paid nothing in the whole run, and the help alone was learnt."""
    if episode.recovered or len(episode) < 3 * LEAST_ROWS:
        return False
    at_start = stats.median(rewards.auxiliary[:5])
    return bool(stats.quantile(rewards.task, 0.98) <= NOTHING * best and at_start < 0.7 * best)


def _fell(rewards: _Rewards) -> Iterator[stats.Episode]:
    """The task reward fell to half, for good, while the auxiliary one rose to its best."""
    count = len(rewards.steps)
    if count < 3 * LEAST_ROWS or not _halved(rewards.task):
        return
    cut = stats.change_point(rewards.task)
    if cut is None or not LEAST_ROWS <= cut <= count - LEAST_ROWS:
        return
    before, after = rewards.task[:cut], rewards.task[cut:]
    usual = stats.median(before)
    if not usual > EARNED or stats.median(after[-LEAST_ROWS:]) > FELL * usual:
        return
    helped, best = rewards.auxiliary, _upper(rewards.auxiliary)
    rose = stats.median(helped[cut:]) >= stats.median(helped[:cut]) + 0.2 * abs(best)
    apart = stats.quantile(after, 0.9) < stats.quantile(before, 0.25)
    if rose and apart:
        yield stats.Episode(cut, count - 1, recovered=False)


def _upper(values: stats.FloatArray) -> float:
    """The level of the best rows; of a long run, every so many-th row tells it."""
    return stats.quantile(values[:: max(1, len(values) // MOST_ROWS)], 0.95)


def _halved(values: stats.FloatArray) -> bool:
    """Whether the last rows are far below the best: a quick look before the thorough one."""
    return not stats.median(values[-LEAST_ROWS:]) > FELL * _upper(values)


def _finding(run: RunContext, rewards: _Rewards, episode: stats.Episode, variant: str) -> Finding:
    first, last = int(rewards.steps[episode.start]), int(rewards.steps[episode.end])
    task = stats.median(rewards.task[episode.rows])
    before = stats.median(rewards.task[: episode.start])
    helped = stats.median(rewards.auxiliary[episode.rows])
    names = ", ".join(name.removeprefix(FAMILY) for name in rewards.auxiliary_names[:3])
    paid = ", ".join(name.removeprefix(FAMILY) for name in rewards.task_names[:3])
    was = f", {stats.number(before)} before" if np.isfinite(before) else ""
    return Finding(
        detector="FORMAT_GAMING",
        variant=variant,
        severity=Severity.WARNING,
        confidence=0.8 if variant == "task_dead" else 0.6,
        first_bad_step=first,
        last_bad_step=last if episode.recovered else run.last_step,
        state=stats.outcome(episode, ended=run.ended),
        summary=(
            f"From step {first:,} on the auxiliary reward ({names}) pays {stats.number(helped)} "
            f"while the task reward ({paid}) is {stats.number(task)}{was}."
        ),
        evidence=(
            Evidence(
                rewards.task_names[0],
                first,
                task,
                before if np.isfinite(before) else None,
                note="task reward: median of the episode against the median before",
            ),
            Evidence(
                rewards.auxiliary_names[0], None, helped, note="auxiliary reward: median of it"
            ),
        ),
        remedies=(
            "test the verifier by hand on a right answer: does it still pass?",
            "pay the auxiliary reward only where the answer is right (rlprobe.guards.gated_reward)",
            "lower the weight of the auxiliary reward now that the format is learnt",
        ),
        metrics=(*rewards.task_names, *rewards.auxiliary_names),
    )


# --- rollouts -------------------------------------------------------------------------------------


def _paid_empty(run: RunContext) -> Iterator[Finding]:
    steps = run.sample_steps()
    chosen = steps[:: max(1, len(steps) // MOST_STEPS)]
    bad = [(step, *_empty(run.rollouts(step))) for step in chosen]
    hits = [(step, share, ids) for step, share, ids in bad if share >= 0.5]
    if not hits or len(hits) < min(3, len(chosen)):
        return
    first, share, ids = hits[0]
    last = hits[-1][0]
    ongoing = last == chosen[-1]
    yield Finding(
        detector="FORMAT_GAMING",
        variant="paid_empty",
        severity=Severity.WARNING,
        confidence=0.9,
        first_bad_step=first,
        last_bad_step=run.last_step if ongoing else last,
        state=("ended_run" if run.ended else "ongoing") if ongoing else "recovered",
        summary=(
            f"{share:.0%} of the rollouts recorded at step {first:,} have an empty answer and earn "
            f"the best reward of the step, as on {len(hits) - 1:,} other recorded steps."
        ),
        evidence=(Evidence("samples", first, share, 0.5, note="share paid for an empty answer"),),
        remedies=(
            "make the verifier fail on an empty answer, and test it with one",
            "read the rollouts linked here",
        ),
        samples=ids[:8],
    )


def _empty(rollouts: tuple[Rollout, ...]) -> tuple[float, tuple[str, ...]]:
    """Share of rollouts with an empty answer at the best (positive) reward, and their ids."""
    paid = [rollout for rollout in rollouts if rollout.reward is not None]
    best = max((rollout.reward or 0.0 for rollout in paid), default=0.0)
    if len(paid) < LEAST_SAMPLES or best <= 0:
        return 0.0, ()
    bad = [
        rollout
        for rollout in paid
        if rollout.reward == best and EMPTY_ANSWER.search(rollout.completion or "")
    ]
    return len(bad) / len(paid), tuple(rollout.sample_id for rollout in bad)
