"""RESTART_DISCONTINUITY: a jump that comes with a restart, because something was not restored."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import (
    Attempt,
    Detector,
    Evidence,
    Finding,
    Inconclusive,
    RunContext,
    Severity,
    knob,
)

LOGS = ("grad_norm", "kl_mean", "entropy", "completion_length_mean")
PLAIN = ("loss", "reward_mean")
LOOP = 3  # launches from one step that are a loop
BEFORE, AFTER = 50, 3  # rows that are compared across a restart
LEAST_BEFORE = 8
LEAST_SIGMA = 0.005  # of the level
LEAST_LOG_SIGMA = 0.1
LR_STEP = 1.5  # times the last learning rate, where a schedule moves by a few percent
SCALE_STEP = 8.0  # a loss scale moves by factors of two
EQUAL = 0.9  # launches so nearly of equal length are separate runs, not restarts of one
PART = {
    "lr": "scheduler",
    "loss_scale": "loss scaler",
    "tokens_seen": "counters",
    "grad_norm": "optimizer state",
    "loss": "weights or optimizer state",
    "reward_mean": "weights or data cursor",
    "kl_mean": "reference model or weights",
    "entropy": "weights or sampling settings",
    "completion_length_mean": "data cursor or sampling settings",
}


@dataclass(frozen=True, slots=True)
class _Jump:
    """One metric on both sides of a restart."""

    metric: str
    step: int
    before: float
    after: float


class RestartDiscontinuity(Detector):
    """A metric jumps at a restart: something of the state was not restored.

    What it detects
        A jump of the learning rate, the loss, the gradient norm, the reward, the loss scale or the
        token count from the last rows before a restart to the first rows after it (`jump`); a
        launch that begins again before everything an earlier one had reached (`from_scratch`); and
        three or more launches from one step (`loop`).

    Why it matters
        Weights alone are not the state. Without the optimizer's moments the first updates are too
        large, without the scheduler the warm-up runs again, without the data cursor the same
        prompts come again. None of this raises an error.

    How it is computed
        At each restart (a launch, a `resumed` event, or steps that go back in a foreign log), the
        first three rows are compared with up to fifty before it: `sigma` robust standard deviations
        for metrics with noise, a factor of 1.5 for a learning rate that otherwise moves smoothly, a
        factor of eight for a loss scale, any step back for the token count.

    What to do
        Save and load optimizer, scheduler, scaler, random states and the data cursor with the
        weights, and compare the first loss after a restart with the one logged before it.

    When it is wrong
        A restart on purpose with other settings jumps on purpose. Several complete runs logged into
        one place are not restarts; launches of nearly equal length are only info.

    References
        BigScience, BLOOM chronicles (2022), on restarts. Zhang et al., OPT logbook (2022).
    """

    id = "RESTART_DISCONTINUITY"
    severity = Severity.WARNING
    facts_only = True

    sigma: float = knob(8, "robust standard deviations that are a jump", minimum=3)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Launches that got nowhere, then one finding per restart with a jump."""
        yield from _launches(run)
        short = False
        for step in _restarts(run):
            jumps = list(self._jumps(run, step))
            short |= not _enough(run, step)
            if jumps:
                yield _finding(run, step, jumps)
        if short:
            raise Inconclusive("too few rows before a restart to compare with")

    def _jumps(self, run: RunContext, step: int) -> Iterator[_Jump]:
        for metric, jumped in self._rules():
            series = run.series(metric)
            if series is None:
                continue
            cut = int(np.searchsorted(series.steps, step))
            before = stats.finite(series.values[max(0, cut - BEFORE) : cut])
            after = stats.finite(series.values[cut : cut + AFTER])
            before, after = before[np.isfinite(before)], after[np.isfinite(after)]
            if len(before) and len(after) and jumped(before, after):
                usual = before[-1] if metric in ("lr", "loss_scale", "tokens_seen") else None
                level = float(stats.median(before) if usual is None else usual)
                yield _Jump(metric, int(series.steps[cut]), level, float(after[0]))

    def _rules(self) -> Iterator[tuple[str, Callable[[stats.FloatArray, stats.FloatArray], bool]]]:
        yield "lr", _lr_jumped
        yield "loss_scale", _scale_jumped
        yield "tokens_seen", _went_back
        for metric in LOGS:
            yield metric, self._log_jumped
        for metric in PLAIN:
            yield metric, self._plain_jumped

    def _log_jumped(self, before: stats.FloatArray, after: stats.FloatArray) -> bool:
        logs = stats.logs(before, 1e-9)
        sigma = max(stats.robust_std(logs), LEAST_LOG_SIGMA)
        off = (stats.logs(after, 1e-9) - stats.median(logs)) / sigma
        return len(before) >= LEAST_BEFORE and self._off(off)

    def _plain_jumped(self, before: stats.FloatArray, after: stats.FloatArray) -> bool:
        level = stats.median(before[-10:])
        sigma = max(stats.robust_std(before[-20:]), LEAST_SIGMA * abs(level), 1e-3)
        return len(before) >= LEAST_BEFORE and self._off((after - level) / sigma)

    def _off(self, z: stats.FloatArray) -> bool:
        """The first row is off, and the rows after it lie on the same side."""
        same_side = np.abs(z) * np.sign(z[0]) == z
        return bool(abs(z[0]) >= self.sigma and stats.median(np.where(same_side, np.abs(z), 0)) > 3)


def _lr_jumped(before: stats.FloatArray, after: stats.FloatArray) -> bool:
    rates = stats.logs(before, 1e-12)
    usual = float(np.abs(np.diff(rates)).max()) if len(rates) > 1 else 0.0
    step = abs(float(stats.logs(after[:1], 1e-12)[0] - rates[-1]))
    return step > max(float(np.log(LR_STEP)), 3 * usual)


def _scale_jumped(before: stats.FloatArray, after: stats.FloatArray) -> bool:
    return bool(after[0] >= SCALE_STEP * before[-1] > 0)


def _went_back(before: stats.FloatArray, after: stats.FloatArray) -> bool:
    return bool(after[0] < before[-1])


# --- restarts -------------------------------------------------------------------------------------


def _restarts(run: RunContext) -> list[int]:
    """Steps at which a launch took over, ascending."""
    if _interleaved(run.attempts):
        return []
    launches = [attempt.first_step for attempt in run.attempts if attempt.number > 1]
    resumed = [event.step for event in run.events("resumed")]
    steps = {step for step in (*launches, *resumed) if step is not None}
    return sorted(step for step in steps if run.first_step < step <= run.last_step)[:100]


def _enough(run: RunContext, step: int) -> bool:
    known = [run.series(metric) for metric in (*PLAIN, *LOGS)]
    rows = [int(np.searchsorted(item.steps, step)) for item in known if item is not None]
    return not rows or max(rows) >= LEAST_BEFORE


def _launches(run: RunContext) -> Iterator[Finding]:
    """Launches that began where others had begun."""
    known = [item for item in run.attempts if item.first_step is not None]
    if len(known) < 2 or _interleaved(known):
        return
    looped = _loop(known)
    if looped:
        yield _launched(run, looped, "loop")
        return
    for before, after in itertools.pairwise(known):
        if _from_scratch(before, after, known[0]):
            yield _launched(run, [before, after], "from_scratch")


def _interleaved(known: Sequence[Attempt]) -> bool:
    """Steps that go back again and again without a takeover: two counters in one file."""
    firsts = [item.first_step or 0 for item in known]
    return len(known) > 3 and all(
        later > earlier for earlier, later in itertools.pairwise(firsts[1:])
    )


def _loop(known: Sequence[Attempt]) -> list[Attempt]:
    """The launches from the step that most began at, if they are a loop."""
    firsts = [item.first_step for item in known]
    often = max(firsts, key=firsts.count)
    same = [item for item in known if item.first_step == often]
    return same if len(same) >= LOOP and not _alike(same) else []


def _alike(launches: Sequence[Attempt]) -> bool:
    """Launches that got equally far, more than a few steps: separate runs in one place."""
    lengths = [_length(item) for item in launches]
    return min(lengths) >= max(10, EQUAL * max(lengths))


def _length(item: Attempt) -> int:
    return (item.last_step or 0) - (item.first_step or 0) + 1


def _from_scratch(before: Attempt, after: Attempt, first: Attempt) -> bool:
    begun = after.first_step or 0
    lost = (before.last_step or 0) - begun
    return begun <= (first.first_step or 0) and lost >= 2 and before.ended != "completed"


# --- words ----------------------------------------------------------------------------------------


def _finding(run: RunContext, step: int, jumps: list[_Jump]) -> Finding:
    said = ", ".join(
        f"{jump.metric} {stats.number(jump.before)} -> {stats.number(jump.after)}" for jump in jumps
    )
    parts = list(dict.fromkeys(PART[jump.metric] for jump in jumps))
    first = min(jump.step for jump in jumps)
    last = max(first, _settled(run, jumps[0]))
    over = last < run.last_step
    only_scale = {jump.metric for jump in jumps} <= {"loss_scale", "tokens_seen"}
    return Finding(
        detector="RESTART_DISCONTINUITY",
        variant="jump",
        severity=Severity.INFO if only_scale else Severity.WARNING,
        confidence=0.9 if len(jumps) > 1 else 0.75,
        first_bad_step=first,
        last_bad_step=last,
        state="recovered" if over else "ended_run" if run.ended else "ongoing",
        summary=f"At the restart of step {step:,}: {said}; not restored, it seems: {parts[0]}.",
        evidence=tuple(
            Evidence(jump.metric, jump.step, jump.after, jump.before, note="first row after it")
            for jump in jumps
        ),
        remedies=(
            f"check that the checkpoint holds, and the restart loads: {', '.join(parts)}",
            f"go back to the checkpoint of step {step:,} and restart with the whole state",
            "compare the first loss after a restart with the last one before it, automatically",
        ),
        metrics=tuple(jump.metric for jump in jumps),
    )


def _settled(run: RunContext, jump: _Jump) -> int:
    """Last row that is nearer to the jump than to the level before it."""
    series = run.series(jump.metric)
    if series is None or jump.metric == "tokens_seen":
        return jump.step
    later = series.steps >= jump.step
    steps, values = series.steps[later], stats.finite(series.values[later])
    near = np.abs(values - jump.before) < 0.5 * abs(jump.after - jump.before)
    back = np.flatnonzero(near)
    if not len(back):
        return run.last_step
    return int(steps[max(0, int(back[0]) - 1)])


def _launched(run: RunContext, launches: list[Attempt], variant: str) -> Finding:
    again = launches[-1]
    step = max(again.first_step or 0, run.first_step)
    reached = max(item.last_step or 0 for item in launches[:-1])
    loop = variant == "loop"
    said = (
        f"{len(launches)} launches began at step {again.first_step:,}, and the ones before the "
        f"last got to step {reached:,} at most: nothing is carried over."
        if loop
        else f"Launch {again.number} began at step {again.first_step:,} again although the one "
        f"before had reached step {reached:,}: nothing was restored."
    )
    apart = not loop and _alike(launches)
    return Finding(
        detector="RESTART_DISCONTINUITY",
        variant=variant,
        severity=Severity.INFO if apart else Severity.WARNING,
        confidence=0.7,
        first_bad_step=step,
        last_bad_step=step,
        state="recovered" if step < run.last_step else "ongoing",
        summary=said,
        evidence=tuple(
            Evidence(
                "event:resumed",
                item.first_step,
                float(item.last_step or 0),
                float(item.first_step or 0),
                note=f"last step of launch {item.number}, against its first",
            )
            for item in launches[-8:]
        ),
        remedies=(
            "resume from a checkpoint, or record a new attempt as a run of its own",
            "check where checkpoints are written, and that the launcher passes the resume flag",
            "find out why the earlier launch ended: its own log, the exit code, the scheduler",
        ),
    )
