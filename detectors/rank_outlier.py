"""RANK_OUTLIER: one rank (or node) is off from the others while the mean looks fine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Evidence, Finding, RunContext, Severity, fixed, knob
from rlprobe.rule import Judged, Period, RankGrid, Stretch, finding, known, listed, number, restore

BY_RATIO = (
    "grad_norm",
    "param_norm",
    "kl_mean",
    "completion_length_mean",
    "logprob_diff_mean",
    "mismatch_kl",
)
PLAIN = ("loss", "policy_loss", "value_loss", "reward_mean", "entropy", "approx_kl")


@dataclass(frozen=True, slots=True)
class _Spell:
    """A stretch of steps over which one rank is off in one metric.

    Attributes:
        usual: what it is compared with at the onset.
        z: how far it is off there, in robust standard deviations.
        single: whether it is one of single rows.
    """

    grid: RankGrid
    stretch: Stretch
    usual: float
    z: float
    single: bool

    @property
    def rank(self) -> int:
        return self.stretch.signal.rank or 0

    @property
    def means(self) -> tuple[float, float]:
        """Mean over ranks: what it was in the rows before the onset, and there."""
        row = self.stretch.start
        *before, now = map(_mean, self.grid.values[max(0, row - 20) : row + 1])
        return stats.median(np.array(before)), now


class RankOutlier(Detector):
    """One rank is off from the others, while the mean over all ranks looks fine.

    What it detects
        A rank whose loss, gradient norm, reward, length, entropy or KL leaves those of the other
        ranks: for several steps, or on one step by a very large distance. Ranks that go off
        together (a node) are one finding.

    Why it matters
        Dashboards show the mean. One rank of 64 at a loss of 40 moves it from 2.05 to 2.59: a
        faulty device, a corrupt data shard or a diverged copy of the weights hides in there, and
        every update mixes it into all others.

    How it is computed
        At each step, the distance of each rank from the median over ranks, in robust standard
        deviations (MAD over ranks, not below its own usual size), on the scale of the metric. A
        rank is off at `sigma` of them if the distance also matters (half the level, or a factor of
        two); most of five rows in a row must be, or one row by `extreme`. With fewer than four
        ranks there is no majority: each is compared with its own past, and must leave it alone.
        Where more than two ranks and an eighth of all show extremes the metric has heavy tails,
        and single ones are passed over. The onset is walked back to where the rank left the
        others. Critical; a warning if it was off from the first row to the last, or only on single
        rows and is back.

    What to do
        Look at that rank's batch first, then at its device (ECC errors, temperature, a slow link),
        and compare a checksum of the weights across ranks.

    When it is wrong
        Ranks that see different data on purpose (a task per rank) differ on purpose: such an offset
        is there from the first row on, and only a warning.

    References
        Meta, The Llama 3 Herd of Models (2024), on hardware faults. Dixit et al., Silent Data
        Corruptions at Scale (2021).
    """

    id = "RANK_OUTLIER"
    severity = Severity.CRITICAL
    needs = tuple(("ranks", name) for name in (*PLAIN, *BY_RATIO))
    stage = "machine"
    caused_by = ("RESTART_DISCONTINUITY",)

    sigma: float = knob(8, "robust standard deviations that are off", minimum=3)
    extreme: float = knob(25, "the same for a single row", minimum=3)

    majority = fixed(4, "ranks of which most tell what is usual")
    edge = fixed(4.0, "standard deviations that a rank is off by at the edge of an episode")
    merge_rows = fixed(10, "rows between two episodes of one rank that do not part them")
    at_once = fixed(3, "logged steps within which several ranks go off together")
    least_log_std = fixed(0.05, "of the logarithm: no ranks lie closer together")
    least_std = fixed(0.01, "of the level: the same for metrics that are not compared by ratio")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per episode of a rank, or of ranks that go off together."""
        lacking = "no values of single ranks: only means over all of them"
        grids = RankGrid.each(run, (*PLAIN, *BY_RATIO), lacking=lacking)
        spells = [spell for grid in grids for spell in self._spells(grid)]
        for group in self._groups(spells, run.interval):
            yield self._finding(group)

    def _spells(self, grid: RankGrid) -> Iterator[_Spell]:
        level, z, matters = self._distances(grid)
        distance = np.abs(z)
        off, extreme = ((distance >= far) & matters for far in (self.sigma, self.extreme))
        heavy_tails = extreme.any(axis=0).sum() > max(2, len(grid.ranks) // 8)
        for column in np.flatnonzero((off | extreme).any(axis=0)).tolist():
            departed = distance[:, column] >= self.edge
            lasting = Judged(grid.of_rank(column), off[:, column], departed)
            singles = Judged(grid.of_rank(column), extreme[:, column] & ~heavy_tails)
            stretches = lasting.persistent(gap=self.merge_rows) if len(z) >= 3 else ()
            for stretch in stretches or singles.runs(gap=self.merge_rows):
                onset = stretch.start, column
                yield _Spell(grid, stretch, float(level[onset]), float(z[onset]), not stretches)

    def _distances(
        self, grid: RankGrid
    ) -> tuple[stats.FloatArray, stats.FloatArray, stats.BoolArray]:
        """What each rank is compared with, how far off it is, and whether that matters."""
        by_ratio = grid.metric in BY_RATIO
        scaled = stats.logs(grid.values, 1e-12) if by_ratio else stats.finite(grid.values)
        many = len(grid.ranks) >= self.majority
        if many:
            level, spread, usual_spread = grid.with_values(scaled).majority()
            std = np.fmax(spread, usual_spread)
        else:
            level, std = grid.with_values(scaled).own_pasts()
        size = np.fmax(np.abs(level), 1e-9)
        z = (scaled - level) / np.fmax(
            std, self.least_log_std if by_ratio else self.least_std * size
        )
        if many:
            z[np.isfinite(scaled).sum(axis=1) < self.majority] = np.nan
        else:
            z[(np.abs(z) >= self.edge).sum(axis=1) != 1] = np.nan
        matters = np.abs(scaled - level) >= (np.log(2) if by_ratio else size / 2)
        return np.broadcast_to(np.exp(level) if by_ratio else level, z.shape), z, matters

    def _groups(self, spells: list[_Spell], interval: int) -> list[list[_Spell]]:
        """Spells of one rank that overlap, and of several ranks that begin together."""
        groups: list[list[_Spell]] = []
        for spell in sorted(spells, key=lambda item: (item.stretch.first, item.rank)):
            home = (group for group in groups if self._belongs(spell, group, interval))
            group = next(home, None)
            if group is None:
                groups.append([spell])
            else:
                group.append(spell)
        return groups[: stats.MOST_EPISODES]

    def _belongs(self, spell: _Spell, group: list[_Spell], interval: int) -> bool:
        first = spell.stretch.first
        if first - group[0].stretch.first <= self.at_once * interval:
            return True
        end = max(item.stretch.seen for item in group) + self.merge_rows * interval
        return first <= end and spell.rank in {item.rank for item in group}

    def _finding(self, group: list[_Spell]) -> Finding:
        lead = min(group, key=lambda item: (item.stretch.first, -len(item.stretch)))
        period = Period.over([item.stretch for item in group])
        ranks = sorted({item.rank for item in group})
        chronic = lead.stretch.start == 0 and len(lead.stretch.signal) > 5
        single = all(item.single for item in group)
        mild = single if period.recovered else chronic
        return finding(
            self,
            period,
            self._sentence(lead, ranks),
            severity=Severity.WARNING if mild else Severity.CRITICAL,
            confidence=0.7 if mild else 0.95,
            evidence=(item for spell in group[:8] for item in _evidence(spell)),
            remedies=(
                f"look at the batch and the device of rank {listed(ranks)} at step "
                f"{period.first:,}",
                "compare a checksum of the weights over all ranks: a copy may have diverged",
                f"{restore(period.first)}, without that device",
            ),
            ranks=ranks,
        )

    def _sentence(self, lead: _Spell, ranks: list[int]) -> str:
        count = len(lead.grid.ranks)
        against = "a median of" if count >= self.majority else "its own past of"
        who = f"Rank {ranks[0]}" if len(ranks) == 1 else f"Ranks {listed(ranks)}"
        before, now = lead.means
        moved = f", while the mean over ranks moved {number(before)} -> {number(now)}"
        return (
            f"{who} of {count} left the others at step {lead.stretch.first:,}: {lead.grid.metric} "
            f"{number(lead.stretch.onset)} against {against} {number(lead.usual)}"
            f"{moved if np.isfinite([before, now]).all() else ''}."
        )


def _mean(values: stats.FloatArray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")


def _evidence(spell: _Spell) -> Iterator[Evidence]:
    stretch, metric = spell.stretch, spell.grid.metric
    step = stretch.first
    before, now = spell.means
    yield stretch.at_onset(spell.usual, "onset, against the others")
    yield Evidence(metric, step, spell.z, rank=spell.rank, note="robust standard deviations off")
    if np.isfinite(now):
        note = "mean over ranks, against the rows before"
        yield Evidence(metric, step, now, known(before), note=note)
