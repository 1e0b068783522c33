"""DEAD_GRADIENT: the gradient is exactly zero although there is something to learn."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Evidence, Finding, RunContext, Severity, knob

NOISE = 1e-6  # spread of equal rewards that rounding leaves, relative to their size
UNMOVED = ("loss", "kl_mean", "approx_kl", "clip_fraction")
LEAST_ROWS = 2
SMALL = 0.02  # a norm that three decimals do not resolve
CHANCE = 1e-6  # odds at which flat groups no longer explain the zeros of a thinned-out log


class DeadGradient(Detector):
    """The gradient norm is exactly zero although rewards differ inside the groups.

    What it detects
        Rows whose gradient norm is 0 while a good part of the groups has different rewards, so
        that there are advantages to learn from.

    Why it matters
        The weights do not move: a frozen adapter, an optimizer without parameters, a broken
        backward pass of a library version. The run generates, scores, and learns nothing, and ends
        with "success".

    How it is computed
        A row counts if the norm is exactly 0 and at most `flat_share` of its groups have equal
        rewards (or their spread is more than rounding). At least `rows` of them in a row, with
        rows of only flat groups between them, are a finding. If the log holds only every n-th
        step, the norm is that of one step and the share of flat groups a mean over all: there the
        zeros must be beyond the odds of flat groups. A norm of 0 on every row of the run is
        probably not measured, unless the loss and the KL, as far as logged, stand at 0 too.

    What to do
        Compare the weights of two checkpoints. Count the trainable parameters that the optimizer
        holds. Try another version of the training library or another parallel layout.

    When it is wrong
        Console logs print 0.000 for a small gradient. Some frameworks log 0 when they have no norm.
        Flat groups have a gradient of zero by right: that is ZERO_VARIANCE.

    References
        ms-swift and DeepSpeed issues on a gradient of 0 on several nodes (2025). TRL issue on an
        adapter that stayed byte-identical. OpenRLHF `deepspeed.py`, which returns 0 for none.
    """

    id = "DEAD_GRADIENT"
    severity = Severity.CRITICAL
    needs = (
        ("grad_norm", "zero_variance_group_fraction"),
        ("grad_norm", "reward_group_std_mean"),
        ("grad_norm", "reward_std"),
    )
    caused_by = ()  # weights that do not move are a root by nature

    flat_share: float = knob(0.8, "share of flat groups that leaves something to learn", maximum=1)
    rows: int = knob(LEAST_ROWS, "rows with a gradient of 0", unit="rows", minimum=1)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per stretch of zeros."""
        series = run.series("grad_norm")
        if series is None:
            return
        steps, norms = stats.measured(series)
        zero = norms == 0
        if not zero.any() or _rounded(norms) or (zero.all() and not _unmoved(run, steps)):
            return
        flat = _flat_share(run, steps)
        telling = zero & (flat <= self.flat_share)
        for episode in stats.episodes(zero & np.isfinite(flat), gap=1):
            rows = np.flatnonzero(telling[episode.rows]) + episode.start
            if len(rows) >= self.rows and _beyond_chance(run, flat[rows]):
                whole = stats.Episode(int(rows[0]), episode.end, episode.recovered)
                yield _finding(run, steps, flat, whole, len(rows))


def _rounded(norms: stats.FloatArray) -> bool:
    """Whether the log has three decimals only, and the norms are hardly larger than that."""
    alive = norms[norms > 0]
    thousandths = np.round(alive * 1000)
    exact = bool(np.isclose(alive * 1000, thousandths, rtol=0, atol=1e-6).all())
    return exact and len(alive) > 0 and stats.median(alive) < SMALL


def _unmoved(run: RunContext, steps: stats.IntArray) -> bool:
    """Whether everything that a moving policy would change stands at 0 as well."""
    logged = [stats.at_steps(run.series(name), steps) for name in UNMOVED if run.series(name)]
    return len(logged) > 1 and all(bool((np.nan_to_num(values) == 0).all()) for values in logged)


def _flat_share(run: RunContext, steps: stats.IntArray) -> stats.FloatArray:
    """Share of flat groups at each step; from the spread of rewards it is all or nothing."""
    shares = run.series("zero_variance_group_fraction")
    if shares is not None:
        return stats.finite(stats.at_steps(shares, steps))
    spread = run.series("reward_group_std_mean") or run.series("reward_std")
    values = stats.at_steps(spread, steps)
    size = np.maximum(1.0, np.nan_to_num(np.abs(stats.at_steps(run.series("reward_mean"), steps))))
    return np.where(np.isfinite(values), (values <= NOISE * size).astype(np.float64), np.nan)


def _beyond_chance(run: RunContext, flat: stats.FloatArray) -> bool:
    """In a log of every n-th step, the one step that the norm is of may have had flat groups."""
    if run.interval == 1:
        return True
    return bool(np.log(np.maximum(flat, 1e-3)).sum() < np.log(CHANCE))


def _finding(
    run: RunContext,
    steps: stats.IntArray,
    flat: stats.FloatArray,
    episode: stats.Episode,
    count: int,
) -> Finding:
    first, last = int(steps[episode.start]), int(steps[episode.end])
    share = float(np.nanmean(flat[episode.rows]))
    source = "zero_variance_group_fraction"
    spread = next(
        (name for name in (source, "reward_group_std_mean", "reward_std") if run.series(name)),
        source,
    )
    at = np.array([first], dtype=np.int64)
    return Finding(
        detector="DEAD_GRADIENT",
        severity=Severity.CRITICAL if count > LEAST_ROWS or not episode.recovered else _MILD,
        confidence=0.85 if count > LEAST_ROWS else 0.7,
        first_bad_step=first,
        last_bad_step=last if episode.recovered else run.last_step,
        state=stats.outcome(episode, ended=run.ended),
        summary=(
            f"The gradient norm is exactly 0 on {count:,} rows from step {first:,} on, although "
            f"{1 - share:.0%} of the groups have different rewards: the weights do not move."
        ),
        evidence=(
            Evidence("grad_norm", first, 0.0, note="exactly 0"),
            Evidence("grad_norm", None, float(count), note="rows at 0 with something to learn"),
            Evidence(
                spread,
                first,
                float(stats.at_steps(run.series(spread), at)[0]),
                note="rewards differ at the same step",
            ),
            Evidence(spread, None, share, note="mean share of flat groups"),
        ),
        remedies=(
            "compare the weights of two checkpoints: are they the same?",
            "count the trainable parameters that the optimizer holds; is the adapter frozen?",
            "try another version of the training library, or fewer nodes",
        ),
        metrics=("grad_norm",),
    )


_MILD = Severity.WARNING
