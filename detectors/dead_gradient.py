"""DEAD_GRADIENT: the gradient is exactly zero although there is something to learn."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, RunContext, fixed, knob
from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.rule import SINCE, Judged, Signal, Stretch, finding, flat_shares
from rlprobe.values import FloatArray

_UNMOVED = ("loss", "kl_mean", "approx_kl", "clip_fraction")


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
        rows of only flat groups and one other row between them, are a finding; it is critical if
        there are more than `few` or it does not pass. If the log holds only every n-th step, the
        norm is that of one step and the share of flat groups a mean over all: there the odds that
        all these steps had only flat groups must be below `chance`. A norm of 0 on every row of the
        run is probably not measured, unless two or more of loss, KL, update KL and clip fraction
        are logged and stand at 0 too. Norms in thousandths with a median below `small` say nothing.

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
    stage = "gradient"
    caused_by = ()  # weights that do not move are a root by nature

    flat_share: float = knob(0.8, "share of flat groups that leaves something to learn", maximum=1)
    rows: int = knob(2, "rows with a gradient of 0", unit="rows", minimum=1)

    few = fixed(2, "rows that are only a warning where they pass")
    small = fixed(0.02, "median norm that three decimals do not resolve")
    chance = fixed(1e-6, "odds that no longer explain zeros in a log of every n-th step")
    least_share = fixed(1e-3, "chance of flat groups that any step is granted there")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per stretch of zeros."""
        norm = Signal.of(run, "grad_norm", minimum=0)
        zero = norm.values == 0
        if not zero.any() or self._rounded(norm) or (zero.all() and not _unmoved(norm)):
            return
        best = next(flat_shares(run), None)
        if best is None:
            return
        source, shares = best
        flat = source.with_values(shares).at(norm.steps)
        telling = zero & (flat <= self.flat_share)
        for stretch in Judged(norm, zero & np.isfinite(flat)).runs(gap=1):
            rows = np.flatnonzero(telling[stretch.rows]) + stretch.start
            if len(rows) >= self.rows and self._beyond_chance(run, flat[rows]):
                dead = stretch.starting(int(rows[0]))
                yield self._finding(dead, len(rows), source, float(np.nanmean(flat[dead.rows])))

    def _rounded(self, norm: Signal) -> bool:
        """Whether the log has three decimals only, and the norms are hardly larger than that."""
        alive = norm.values[norm.values > 0] * 1000
        exact = np.isclose(alive, np.round(alive), rtol=0, atol=1e-6).all()
        return bool(exact) and stats.median(alive) < 1000 * self.small

    def _beyond_chance(self, run: RunContext, flat: FloatArray) -> bool:
        odds = np.log(np.maximum(flat, self.least_share)).sum()
        return run.interval == 1 or bool(odds < math.log(self.chance))

    def _finding(self, stretch: Stretch, count: int, source: Signal, share: float) -> Finding:
        lasting = count > self.few
        return finding(
            self,
            stretch,
            f"The gradient norm is exactly 0 on {count:,} rows{SINCE}, although {1 - share:.0%} of "
            f"the groups have different rewards: the weights do not move.",
            severity=Severity.WARNING if stretch.recovered and not lasting else Severity.CRITICAL,
            confidence=0.85 if lasting else 0.7,
            evidence=(
                stretch.at_onset(None, "exactly 0"),
                stretch.in_all(count, None, "rows at 0 with something to learn"),
                Evidence(
                    source.metric,
                    stretch.first,
                    float(source.at(stretch.signal.steps[[stretch.start]])[0]),
                    note="rewards differ at the same step",
                ),
                Evidence(source.metric, None, share, note="mean share of flat groups"),
            ),
            remedies=(
                "compare the weights of two checkpoints: are they the same?",
                "count the trainable parameters that the optimizer holds; is the adapter frozen?",
                "try another version of the training library, or fewer nodes",
            ),
        )


def _unmoved(norm: Signal) -> bool:
    """Whether everything that a moving policy would change stands at 0 as well."""
    logged = [norm.beside(name) for name in _UNMOVED if norm.run.series(name)]
    return len(logged) > 1 and all((np.nan_to_num(values) == 0).all() for values in logged)
