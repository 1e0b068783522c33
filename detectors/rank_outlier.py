"""RANK_OUTLIER: one rank (or node) is off from the others while the mean looks fine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Evidence, Finding, RunContext, Severity, fixed, knob, rule
from rlprobe.rule import (
    WHOLE,
    Judged,
    Period,
    RankGrid,
    Stretch,
    finding,
    known,
    listed,
    number,
    restore,
)

BY_RATIO = (
    "grad_norm",
    "param_norm",
    "kl_mean",
    "completion_length_mean",
    "logprob_diff_mean",
    "mismatch_kl",
)
COPIED = ("param_norm", "grad_norm", "lr", "loss_scale")  # the same wherever the weights are copies
STATES = ("param_norm", "lr", "loss_scale")  # of the copies themselves: also if they never move
PLAIN = ("loss", "policy_loss", "value_loss", "reward_mean", "entropy", "approx_kl")
METRICS = tuple(dict.fromkeys((*PLAIN, *BY_RATIO, *COPIED)))


@dataclass(frozen=True, slots=True)
class _Spell:
    """A stretch of steps over which one rank is off in one metric.

    Attributes:
        usual: what it is compared with at the onset.
        far: how far it is off there: in robust standard deviations, or as a part for a copy.
        variant: the rule that found it.
        single: whether it is one of single rows.
    """

    grid: RankGrid
    stretch: Stretch
    usual: float
    far: float
    variant: str | None
    single: bool = False

    @property
    def rank(self) -> int:
        return self.stretch.signal.rank or 0

    @property
    def means(self) -> tuple[float, float]:
        """Mean over ranks: what it was in the rows before the onset, and there."""
        row = self.stretch.start
        *before, now = map(_mean, self.grid.values[max(0, row - 20) : row + 1])
        return stats.median(np.array(before)), now


@dataclass(frozen=True, slots=True)
class _Compared:
    """A metric of all ranks beside what each rank is compared with, on the metric's scale.

    Attributes:
        level: of the majority, shape (n, 1), or of each rank's own past, shape (n, m).
        std: robust standard deviation, of the same shape.
        distance, z: how far off each rank is, by itself and in such deviations.
    """

    grid: RankGrid
    level: stats.FloatArray
    std: stats.FloatArray
    distance: stats.FloatArray
    z: stats.FloatArray

    def spell(
        self, stretch: Stretch, column: int, variant: str | None = None, *, single: bool = False
    ) -> _Spell:
        """A stretch over which a rank is off."""
        row = stretch.start
        level = float(np.broadcast_to(self.level, self.z.shape)[row, column])
        usual = math.exp(level) if self.grid.metric in BY_RATIO else level
        return _Spell(self.grid, stretch, usual, float(self.z[row, column]), variant, single)

    def stands_out(self, stretch: Stretch, column: int, times: float, around: int) -> bool:
        """Whether a rank is so many times as far off as any other ever is, rows around apart."""
        others = np.delete(np.abs(self.distance), column, axis=1)
        others[max(0, stretch.start - around) : stretch.end + around + 1] = np.nan
        own = np.nanmax(np.abs(self.distance[stretch.rows, column]))
        return bool(own >= times * np.nanmax(others, initial=0.0))

    def moving(self, rows: int, far: float) -> stats.BoolArray:
        """Rows before which the majority's level moved by so many times the scatter, or began."""
        before = np.concatenate((self.level[:rows, 0] * np.nan, self.level[:-rows, 0]))
        still = np.abs(self.level[:, 0] - before[: len(self.z)]) < far * self.std[:, 0]
        moved: stats.BoolArray = ~still
        return moved


class RankOutlier(Detector):
    """One rank is off from the others, while the mean over all ranks looks fine.

    What it detects
        A rank whose loss, gradient norm, reward, length, entropy or KL leaves those of the other
        ranks: for several steps, or on one step by a very large distance; and a copy of the weights
        that is not the same as the others any more. Ranks that go off together (a node) are one
        finding.

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
        is there from the first row on, and only a warning. One that comes later, when a rank goes
        over to other data, looks like a fault. Ranks that hold different parts of the weights
        (pipeline stages) have norms of their own: nothing is shared there, and nothing is said.

    References
        Meta, The Llama 3 Herd of Models (2024), on hardware faults. Dixit et al., Silent Data
        Corruptions at Scale (2021).
    """

    id = "RANK_OUTLIER"
    severity = Severity.CRITICAL
    needs = tuple(("ranks", name) for name in METRICS)
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
    long = fixed(10, "rows in a row of which most are off where the distance itself is small")
    most = fixed(0.8, "share of rows that is most of them")
    from_start = fixed(2, "times `sigma` that a rank is off which never was with the others")
    settled = fixed(8, "rows over which the common level stays within the scatter to be at rest")
    elsewhere = fixed(2, "times the farthest of all other ranks and rows that a single row must be")
    crowd = fixed(4, "one rank in so many, or a single one, may leave the others: more is no fault")
    shared = fixed(8, "rows on which copies were the same before they parted")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per episode of a rank, or of ranks that go off together."""
        lacking = "no values of single ranks: only means over all of them"
        spells = [
            spell
            for grid in RankGrid.each(run, METRICS, lacking=lacking)
            for spell in self._spells(grid)
        ]
        for group in self._groups(spells, run.interval):
            yield self._finding(group)

    def _spells(self, grid: RankGrid) -> Iterator[_Spell]:
        if grid.metric in (*PLAIN, *BY_RATIO):
            compared = self._compared(grid)
            yield from self._far(compared)
            yield from self._apart(compared)
        yield from self._replica(grid)

    @rule(None)
    def _far(self, compared: _Compared) -> Iterator[_Spell]:
        """By `sigma` and by a distance that matters; or on a single row by `extreme`."""
        grid, z = compared.grid, compared.z
        matter = np.log(2) if grid.metric in BY_RATIO else _size(compared.level) / 2
        matters = np.abs(compared.distance) >= matter
        off, extreme = ((np.abs(z) >= far) & matters for far in (self.sigma, self.extreme))
        huge = self.from_start * self.sigma
        heavy_tails = extreme.any(axis=0).sum() > max(2, len(grid.ranks) // 8)
        for column in np.flatnonzero((off | extreme).any(axis=0)).tolist():
            departed = np.abs(z[:, column]) >= self.edge
            lasting = Judged(grid.of_rank(column), off[:, column], departed)
            singles = Judged(grid.of_rank(column), extreme[:, column] & ~heavy_tails)
            stretches = lasting.persistent(gap=self.merge_rows) if len(z) >= 3 else ()
            for stretch in stretches:
                if stretch.start or stats.median(np.abs(z[stretch.rows, column])) >= huge:
                    yield compared.spell(stretch, column)
            for stretch in () if stretches else singles.runs(gap=self.merge_rows):
                if compared.stands_out(stretch, column, self.elsewhere, self.merge_rows):
                    yield compared.spell(stretch, column, single=True)

    @rule("apart")
    def _apart(self, compared: _Compared) -> Iterator[_Spell]:
        """The distance is small, but it is `sigma` both from the others and from where the rank
        used to be among them while their common level was at rest, on most of ten rows in a row. A
        quarter of the ranks at most may be. A warning.
        """
        grid, z = compared.grid, compared.z
        if len(grid.ranks) < self.majority:
            return
        off = np.abs(z) >= self.sigma
        often = np.flatnonzero(off.sum(axis=0) >= self.most * self.long)
        for column in self._few(often, grid):
            own = grid.of_rank(column, z[:, column])
            past = own.past(
                above=self.edge,
                below=self.edge,
                warmup=self.shared,
                window=WHOLE,
                without=compared.moving(self.settled, self.edge),
            )
            gone = past.rise * np.sign(own.values) / np.fmax(past.robust_std, 1.0)
            departed = (np.abs(own.values) >= self.edge) & (gone >= self.edge)
            judged = Judged(grid.of_rank(column), off[:, column] & (gone >= self.sigma), departed)
            for stretch in judged.persistent(self.long, self.most, gap=self.merge_rows):
                yield compared.spell(stretch, column, "apart")

    @rule("replica")
    def _replica(self, grid: RankGrid) -> Iterator[_Spell]:
        """What copies share (norm of the weights or of their gradient, learning rate, loss scale)
        was the same to the last bit on all ranks, and is not on one of them for most of five rows
        in a row. A norm of the weights may differ from the first row on if three others are equal.
        Critical; a warning once it has passed.
        """
        if grid.metric not in COPIED or len(grid.ranks) <= 2:
            return
        common, apart = grid.shared()
        agreed = np.isfinite(common)
        same = agreed & ~apart.any(axis=1)
        for column in self._few(np.flatnonzero(apart.sum(axis=0) >= 3), grid):
            for stretch in Judged(grid.of_rank(column), apart[:, column]).persistent():
                before = np.flatnonzero(same[: stretch.start])
                if not self._copied(grid, common[before], int(agreed[: stretch.start].sum())):
                    continue
                usual = float(common[stretch.start])
                far = (stretch.onset - usual) / max(abs(usual), 1e-300)
                yield _Spell(grid, stretch, usual, far, "replica")

    def _copied(self, grid: RankGrid, before: stats.FloatArray, agreed: int) -> bool:
        """Whether ranks share a metric because they are copies, by what they shared before."""
        if not agreed:
            return grid.metric == STATES[0] and len(grid.ranks) >= self.majority
        moving = grid.metric in STATES or len(stats.distinct(before)) > len(before) // 2
        return moving and len(before) >= max(self.shared, self.most * agreed)

    def _few(self, columns: stats.IntArray, grid: RankGrid) -> list[int]:
        """These ranks, if they are few enough to be at fault."""
        few = len(columns) <= max(1, len(grid.ranks) // self.crowd)
        return columns.tolist() if few else []

    def _compared(self, grid: RankGrid) -> _Compared:
        by_ratio = grid.metric in BY_RATIO
        scaled = stats.logs(grid.values, 1e-12) if by_ratio else stats.finite(grid.values)
        many = len(grid.ranks) >= self.majority
        if many:
            level, spread, usual_spread = grid.with_values(scaled).majority()
            std = np.fmax(spread, usual_spread)
            std = np.where(std > 0, std, _usual_distance(scaled - level))
        else:
            level, std = grid.with_values(scaled).own_pasts()
        least = self.least_log_std if by_ratio else self.least_std * _size(level)
        distance = scaled - level
        std = np.fmax(std, least)
        z = distance / std
        if many:
            z[np.isfinite(scaled).sum(axis=1) < self.majority] = np.nan
        else:
            z[(np.abs(z) >= self.edge).sum(axis=1) != 1] = np.nan
        return _Compared(grid, level, std, distance, z)

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
        lead = min(group, key=_place)
        period = Period.over([item.stretch for item in group])
        ranks = sorted({item.rank for item in group})
        mild = all(map(_is_mild, [[item] for item in group if item.variant]))
        mild = mild and _is_mild([item for item in group if not item.variant])
        return finding(
            self,
            period,
            self._sentence(lead, ranks),
            severity=Severity.WARNING if mild else Severity.CRITICAL,
            confidence=0.7 if mild else 0.95,
            variant=lead.variant,
            evidence=dict.fromkeys(item for spell in group[:8] for item in _evidence(spell)),
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
        if lead.variant == "replica":
            against = "one and the same on the others,"
        who = f"Rank {ranks[0]}" if len(ranks) == 1 else f"Ranks {listed(ranks)}"
        before, now = lead.means
        moved = f", while the mean over ranks moved {number(before)} -> {number(now)}"
        told = np.isfinite([before, now]).all() and lead.variant != "replica"
        return (
            f"{who} of {count} left the others at step {lead.stretch.first:,}: {lead.grid.metric} "
            f"{number(lead.stretch.onset)} against {against} {number(lead.usual)}"
            f"{moved if told else ''}."
        )


def _size(level: stats.FloatArray) -> stats.FloatArray:
    return np.fmax(np.abs(level), 1e-9)


def _usual_distance(distance: stats.FloatArray) -> float:
    """What is usual where most ranks are equal: half of the ranks are farther off on average."""
    means = [stats.SIGMA_PER_MEAN * _mean(column) for column in np.abs(distance).T]
    return stats.median(np.array(means))


def _place(spell: _Spell) -> tuple[int, bool, int]:
    """The first leads; of several the one whose distance matters by itself, and the longest."""
    return spell.stretch.first, spell.variant is not None, -len(spell.stretch)


def _is_mild(group: list[_Spell]) -> bool:
    """Whether spells of one kind are no more than a warning."""
    if not group:
        return True
    lead = min(group, key=_place)
    recovered = all(item.stretch.recovered for item in group)
    if lead.variant:
        return recovered or lead.variant == "apart"
    chronic = lead.stretch.start == 0 and len(lead.stretch.signal) > 5
    return all(item.single for item in group) if recovered else chronic


def _mean(values: stats.FloatArray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")


def _evidence(spell: _Spell) -> Iterator[Evidence]:
    stretch, metric = spell.stretch, spell.grid.metric
    before, now = spell.means
    yield stretch.at_onset(spell.usual, "onset, against the others")
    by = "as a part of it" if spell.variant == "replica" else "in robust standard deviations"
    yield Evidence(metric, None, spell.far, rank=spell.rank, note=f"distance at the onset, {by}")
    if np.isfinite(now):
        note = "mean over ranks, against the rows before"
        yield Evidence(metric, stretch.first, now, known(before), note=note)
