"""RESTART_DISCONTINUITY: a jump that comes with a restart, because something was not restored."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

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
    fixed,
    knob,
    rule,
)
from rlprobe.rule import (
    Moment,
    Period,
    Signal,
    Stretch,
    finding,
    level_moves,
    number,
    restarts,
    stretch_from,
)
from rlprobe.values import two_counters

PART = {  # of the state, that is missing when this metric jumps
    "lr": "scheduler",
    "loss_scale": "loss scaler",
    "tokens_seen": "counters",
    "grad_norm": "optimizer state",
    "kl_mean": "reference model or weights",
    "entropy": "weights or sampling settings",
    "completion_length_mean": "data cursor or sampling settings",
    "loss": "weights or optimizer state",
    "reward_mean": "weights or data cursor",
}
EXACT = ("lr", "loss_scale", "tokens_seen")  # without noise
PLAIN = ("loss", "reward_mean")  # not compared by ratio


class RestartDiscontinuity(Detector):
    """A metric jumps at a restart: something of the state was not restored.

    What it detects
        A jump of the learning rate, the loss, the gradient norm, the reward, the loss scale or the
        token count from the last rows before a restart to the first rows after it; a launch that
        begins again before everything an earlier one had reached; and launches from one step
        again and again.

    Why it matters
        Weights alone are not the state. Without the optimizer's moments the first updates are too
        large, without the scheduler the warm-up runs again, without the data cursor the same
        prompts come again. None of this raises an error.

    How it is computed
        At each restart (a launch, a `resumed` event, or steps that go back in a foreign log), the
        first three rows are compared with up to fifty before it. A learning rate must leave its
        last value by a factor of 1.5, and by three times its largest step before; a loss scale must
        rise eightfold; a token count must go back. Of metrics with noise, the first row must be off
        by `sigma` robust standard deviations, and most by three, on the same side; loss and reward
        are compared with the last ten rows, as to their level, and the last twenty, as to their
        scatter. Two metrics that move together need less: the median of their first three rows
        must be off the last ten by twice what such a change ever was among the rows before. Four
        launches or more, each later than the one before, of which most lose more than they keep,
        are two counters in one file and no restarts.

    What to do
        Save and load optimizer, scheduler, scaler, random states and the data cursor with the
        weights, and compare the first loss after a restart with the one logged before it.

    When it is wrong
        A restart on purpose with other settings jumps on purpose. Several complete runs logged into
        one place are not restarts; launches of nearly equal length are no loop, and only info.

    References
        BigScience, BLOOM chronicles (2022), on restarts. Zhang et al., OPT logbook (2022).
    """

    id = "RESTART_DISCONTINUITY"
    severity = Severity.WARNING
    stage = "machine"
    facts_only = True

    sigma: float = knob(8, "robust standard deviations that are a jump", minimum=3)

    looped = fixed(3, "launches from one step that are a loop")
    before = fixed(50, "rows before a restart")
    after = fixed(3, "rows after it")
    least_before = fixed(8, "rows before a restart that a metric with noise needs")
    least_std = fixed(0.005, "of the level: no loss or reward is steadier")
    least_log_std = fixed(0.1, "of the logarithm: none of the other metrics is steadier")
    lr_step = fixed(1.5, "times the last learning rate, where a schedule moves by a few percent")
    scale_step = fixed(8.0, "times the last loss scale, which moves by factors of two")
    usual = fixed(10, "rows before a restart, or before any other, that give a level")
    times = fixed(2.0, "times the largest change of such a level among the rows before")
    least_moves = fixed(20, "such changes that must be known")
    least_sigma = fixed(2.0, "robust standard deviations, of two metrics that move together")
    equal = fixed(0.9, "of the longest: launches so long are separate runs, not restarts of one")

    @rule("loop")
    def _loop(self, run: RunContext) -> Iterator[Finding]:
        """Three launches or more began at one step, and did not get equally far. A warning."""
        launches = self._looping(run)
        if launches:
            reached = max(item.last_step or 0 for item in launches[:-1])
            yield self._launched(
                run,
                launches,
                "loop",
                f"{len(launches)} launches began at step {launches[-1].first_step:,}, and the ones "
                f"before the last got to step {reached:,} at most: nothing is carried over.",
            )

    @rule("from_scratch")
    def _from_scratch(self, run: RunContext) -> Iterator[Finding]:
        """A launch began where the first one had, although the one before it had got further and
        had not completed. A warning; info where both are about equally long.
        """
        launches = [] if self._looping(run) else _launches(run)
        for earlier, later in itertools.pairwise(launches):
            begun, reached = later.first_step or 0, earlier.last_step or 0
            again = begun <= (launches[0].first_step or 0)
            if again and reached - begun >= 2 and earlier.ended != "completed":
                yield self._launched(
                    run,
                    [earlier, later],
                    "from_scratch",
                    f"Launch {later.number} began at step {begun:,} again although the one before "
                    f"had reached step {reached:,}: nothing was restored.",
                )

    @rule("jump")
    def _jump(self, run: RunContext) -> Iterator[Finding]:
        """A metric jumps at a restart. A warning; info if only loss scale or token count do."""
        signals = _logged(run)
        noisy = [signal for signal in signals if signal.metric not in EXACT]
        short = False
        for step in _taken_up(run):
            first_rows = (self._first_rows(signal, step) for signal in signals)
            jumps = [rows for rows in first_rows if self._jumped(rows)]
            if jumps:
                yield self._finding(run, step, jumps, "jump")
            rows = [int(np.searchsorted(signal.steps, step)) for signal in noisy]
            short |= bool(noisy) and max(rows) < self.least_before
        if short:
            raise Inconclusive("too few rows before a restart to compare with")

    @rule("off_path")
    def _off_path(self, run: RunContext) -> Iterator[Finding]:
        """None of them jumps so far, but two or more metrics go on from another level than the one
        before the restart, further than they had ever moved in so few rows. A warning.
        """
        signals = _logged(run)
        for step in _taken_up(run):
            first_rows = [self._first_rows(signal, step) for signal in signals]
            moved = [rows for rows in first_rows if self._moved(rows)]
            if len(moved) > 1 and not any(map(self._jumped, first_rows)):
                yield self._finding(run, step, moved, "off_path")

    def _moved(self, rows: Stretch) -> bool:
        """Whether a metric with noise goes on elsewhere: against all its changes before."""
        start, values = rows.start, rows.signal.values
        before = values[max(0, start - 2 * self.before) : start]
        if rows.signal.metric in EXACT or len(rows.values) < self.after:
            return False
        moves = np.abs(level_moves(before, self.usual, self.after))
        if len(moves) < self.least_moves:
            return False
        move = abs(stats.median(rows.values) - stats.median(before[-self.usual :]))
        least = self.least_sigma * stats.robust_std(before[-self.before :])
        return move > max(self.times * float(moves.max()), least, 1e-9)

    def _first_rows(self, signal: Signal, step: int) -> Stretch:
        row = int(np.searchsorted(signal.steps, step))
        return stretch_from(signal, row, row + self.after - 1)

    def _jumped(self, rows: Stretch) -> bool:
        metric, after = rows.signal.metric, rows.values
        before = rows.signal.values[max(0, rows.start - self.before) : rows.start]
        if not len(before) or not len(after):
            return False
        if metric == "lr":
            moves = np.abs(np.diff(stats.logs(np.append(before, after[0]), 1e-12)))
            return bool(moves[-1] > max(np.log(self.lr_step), 3 * moves[:-1].max(initial=0)))
        if metric == "loss_scale":
            return bool(after[0] >= self.scale_step * before[-1] > 0)
        if metric == "tokens_seen":
            return bool(after[0] < before[-1])
        return len(before) >= self.least_before and self._off(metric, before, after)

    def _off(self, metric: str, before: stats.FloatArray, after: stats.FloatArray) -> bool:
        """The first row is off, and the rows after it lie on the same side."""
        if metric in PLAIN:
            level = stats.median(before[-10:])
            std = max(stats.robust_std(before[-20:]), self.least_std * abs(level), 1e-3)
        else:
            before, after = stats.logs(before, 1e-9), stats.logs(after, 1e-9)
            level, std = stats.median(before), max(stats.robust_std(before), self.least_log_std)
        z = (after - level) / std
        z *= np.sign(z[0])
        return bool(z[0] >= self.sigma and stats.median(np.maximum(z, 0)) > 3)

    def _level(self, rows: Stretch) -> float:
        exact = rows.signal.metric in EXACT
        return float(rows.signal.values[rows.start - 1]) if exact else rows.before(self.before)

    def _looping(self, run: RunContext) -> list[Attempt]:
        """The launches from the step that most began at, if they are a loop."""
        launches = _launches(run)
        firsts = [item.first_step for item in launches]
        often = max(firsts, key=firsts.count, default=None)
        same = [item for item in launches if item.first_step == often]
        return same if len(same) >= self.looped and not self._alike(same) else []

    def _alike(self, launches: Sequence[Attempt]) -> bool:
        """Launches that got equally far, more than a few steps: separate runs in one place."""
        lengths = [(item.last_step or 0) - (item.first_step or 0) + 1 for item in launches]
        return min(lengths) >= max(10, self.equal * max(lengths))

    def _finding(
        self, run: RunContext, step: int, jumps: Sequence[Stretch], variant: str
    ) -> Finding:
        first = min(rows.first for rows in jumps)
        last = max(first, self._settled(jumps[0], 1 if variant == "jump" else self.after))
        metrics = tuple(rows.signal.metric for rows in jumps)
        parts = list(dict.fromkeys(PART[metric] for metric in metrics))
        changes = ", ".join(
            f"{rows.signal.metric} {number(self._level(rows))} -> {number(rows.onset)}"
            for rows in jumps
        )
        only_counters = {"loss_scale", "tokens_seen"}.issuperset(metrics)
        return finding(
            self,
            Period(run, first, last, last < run.last_step, metrics),
            f"At the restart of step {step:,}: {changes}; not restored, it seems: {parts[0]}.",
            variant=variant,
            severity=Severity.INFO if only_counters else Severity.WARNING,
            confidence=0.9 if len(jumps) > 1 else 0.75,
            evidence=(rows.at_onset(self._level(rows), "first row after it") for rows in jumps),
            remedies=(
                f"check that the checkpoint holds, and the restart loads: {', '.join(parts)}",
                f"go back to the checkpoint of step {step:,} and restart with the whole state",
                "compare the first loss after a restart with the last one before it, automatically",
            ),
        )

    def _settled(self, jump: Stretch, rows: int) -> int:
        """Step of the last row that is nearer to the jump than to the level before it.

        Args:
            rows: so many in a row count by their median.
        """
        signal, level = jump.signal, self._level(jump)
        if signal.metric == "tokens_seen":
            return jump.first
        since = signal.values[jump.start :]
        medians = stats.row_medians(np.lib.stride_tricks.sliding_window_view(since, rows))
        back = np.flatnonzero(np.abs(medians - level) < abs(float(medians[0]) - level) / 2)
        if not len(back):
            return signal.run.last_step
        return int(signal.steps[jump.start + max(0, int(back[0]) - 1)])

    def _launched(
        self, run: RunContext, launches: Sequence[Attempt], variant: str, sentence: str
    ) -> Finding:
        step = max(launches[-1].first_step or 0, run.first_step)
        apart = variant == "from_scratch" and self._alike(launches)
        episode = finding(
            self,
            Moment(step, "recovered" if step < run.last_step else "ongoing"),
            sentence,
            variant=variant,
            severity=Severity.INFO if apart else Severity.WARNING,
            confidence=0.7,
            evidence=map(_launch, launches[-8:]),
            remedies=(
                "resume from a checkpoint, or record a new attempt as a run of its own",
                "check where checkpoints are written, and that the launcher passes the resume flag",
                "find out why the earlier launch ended: its own log, the exit code, the scheduler",
            ),
        )
        shown_by = launches[min(self.looped, len(launches)) - 1]
        return dataclasses.replace(episode, attempt=shown_by.number)


def _logged(run: RunContext) -> list[Signal]:
    """The metrics that tell of a restart."""
    return [signal for name in PART if (signal := Signal.logged(run, name)) is not None]


def _taken_up(run: RunContext) -> list[int]:
    """Steps of restarts that were logged."""
    steps = [] if two_counters(run.attempts) else restarts(run)[:100]
    return [step for step in steps if step <= run.last_step]


def _launches(run: RunContext) -> list[Attempt]:
    """The launches, all of them: of the run as it is now, not of what was abandoned."""
    if run.overtaken:
        return []
    known = [item for item in run.attempts if item.first_step is not None]
    return [] if two_counters(run.attempts) else known


def _launch(item: Attempt) -> Evidence:
    first, last = item.first_step or 0, item.last_step or 0
    note = f"last step of launch {item.number}, against its first"
    return Evidence("event:resumed", first, float(last), float(first), note=note)
