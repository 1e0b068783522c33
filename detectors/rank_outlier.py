"""RANK_OUTLIER: one rank (or node) is off from the others while the mean looks fine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import (
    Detector,
    Evidence,
    Finding,
    Inconclusive,
    RunContext,
    Series,
    Severity,
    knob,
)

LOGS = (  # compared by ratio
    "grad_norm",
    "param_norm",
    "kl_mean",
    "completion_length_mean",
    "logprob_diff_mean",
    "mismatch_kl",
)
PLAIN = ("loss", "policy_loss", "value_loss", "reward_mean", "entropy", "approx_kl")
CROWD = 4  # ranks that make a majority; with fewer, each is compared with its own past
SPAN = 5  # rows that are looked at together
LASTING = 0.8  # share of them that must be off
MERGE_ROWS = 10  # episodes of one rank so close together are one
TOGETHER = 3  # rows within which several ranks go off together
INSIDE = 4.0  # standard deviations that a rank is off by at the edge of an episode
LEAST_SIGMA = 0.01  # of the level
LEAST_LOG_SIGMA = 0.05
FAR = 0.5  # of the level
FAR_LOG = float(np.log(2))


@dataclass(frozen=True, slots=True)
class _Grid:
    """One metric of all ranks, and how far each is off.

    Attributes:
        values: as logged, shape (steps, ranks); NaN where a rank did not report.
        usual: what a rank is compared with, same shape or broadcastable to it.
        z: distance in robust standard deviations; NaN where nothing is known.
        far: whether the distance matters, whatever the spread.
    """

    metric: str
    steps: stats.IntArray
    ranks: stats.IntArray
    values: stats.FloatArray
    usual: stats.FloatArray
    z: stats.FloatArray
    far: stats.BoolArray


@dataclass(frozen=True, slots=True)
class _Spell:
    """A stretch of steps over which one rank is off in one metric."""

    grid: _Grid
    column: int
    episode: stats.Episode
    single: bool

    @property
    def rank(self) -> int:
        return int(self.grid.ranks[self.column])

    @property
    def first(self) -> int:
        return int(self.grid.steps[self.episode.start])

    @property
    def last(self) -> int:
        return int(self.grid.steps[self.episode.end])


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
        Where many ranks show single extremes the metric has heavy tails, and they are passed over.

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
    needs = tuple(("ranks", name) for name in (*PLAIN, *LOGS))
    caused_by = ("RESTART_DISCONTINUITY",)

    sigma: float = knob(8, "robust standard deviations that are off", minimum=3)
    extreme: float = knob(25, "the same for a single row", minimum=3)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per episode of a rank, or of ranks that go off together."""
        spells: list[_Spell] = []
        reported = 0
        for metric in (*PLAIN, *LOGS):
            by_rank = run.rank_series(metric)
            reported = max(reported, len(by_rank))
            if len(by_rank) > 1:
                spells.extend(self._spells(_grid(metric, by_rank)))
        for group in _groups(spells, run.interval):
            yield _finding(run, group)
        if reported < 2:
            raise Inconclusive("no values of single ranks: only means over all of them")

    def _spells(self, grid: _Grid) -> list[_Spell]:
        off = (np.abs(grid.z) >= self.sigma) & grid.far
        extreme = (np.abs(grid.z) >= self.extreme) & grid.far
        heavy = int(extreme.any(axis=0).sum()) > max(2, len(grid.ranks) // 8)
        lasting = [spell for column in _candidates(off, 3) for spell in _lasting(grid, off, column)]
        known = {spell.rank for spell in lasting}
        single = [] if heavy else _candidates(extreme, 1)
        return lasting + [
            _Spell(grid, column, episode, single=True)
            for column in single
            if int(grid.ranks[column]) not in known
            for episode in stats.episodes(extreme[:, column], gap=MERGE_ROWS)
        ]


def _candidates(off: stats.BoolArray, least: int) -> list[int]:
    columns: list[int] = np.flatnonzero(off.sum(axis=0) >= least).tolist()
    return columns


def _lasting(grid: _Grid, off: stats.BoolArray, column: int) -> list[_Spell]:
    found = stats.persistent(off[:, column], width=SPAN, share=LASTING, gap=MERGE_ROWS)
    outside = np.abs(grid.z[:, column]) >= INSIDE
    return [
        _Spell(
            grid,
            column,
            stats.Episode(
                stats.extend_back(outside, episode.start), episode.end, episode.recovered
            ),
            single=False,
        )
        for episode in found
        if len(episode) >= 3
    ]


# --- the grid -------------------------------------------------------------------------------------


def _grid(metric: str, by_rank: Mapping[int, Series]) -> _Grid:
    ranks = np.array(sorted(by_rank), dtype=np.int64)
    steps = _all_steps([by_rank[int(rank)].steps for rank in ranks])
    values = np.full((len(steps), len(ranks)), np.nan)
    for column, rank in enumerate(ranks.tolist()):
        own = by_rank[rank]
        values[np.searchsorted(steps, own.steps), column] = own.values
    log = metric in LOGS
    scaled = stats.logs(values, 1e-12) if log else stats.finite(values)
    across = len(ranks) >= CROWD
    usual, z = _from_majority(scaled, log=log) if across else _from_past(scaled, log=log)
    distance = np.abs(scaled - usual)
    far = distance >= FAR_LOG if log else distance >= FAR * np.maximum(np.abs(usual), 1e-9)
    return _Grid(metric, steps, ranks, values, np.exp(usual) if log else usual, z, far)


def _all_steps(parts: list[stats.IntArray]) -> stats.IntArray:
    longest = max(parts, key=len)
    if all(len(part) == len(longest) and bool((part == longest).all()) for part in parts):
        return longest
    return np.unique(np.concatenate(parts))


def _from_majority(
    scaled: stats.FloatArray, *, log: bool
) -> tuple[stats.FloatArray, stats.FloatArray]:
    """Median over ranks at each step, and distances from it."""
    center = _row_medians(scaled)
    distance = scaled - center[:, None]
    sigma = stats.SIGMA_PER_MAD * _row_medians(np.abs(distance))
    usual = stats.past_baseline(sigma, warmup=3).center
    floor = LEAST_LOG_SIGMA if log else LEAST_SIGMA * np.maximum(np.abs(center), 1e-9)
    sigma = np.fmax(np.fmax(sigma, usual), floor)
    crowded = np.isfinite(scaled).sum(axis=1) >= CROWD
    z = distance / sigma[:, None]
    z[~crowded] = np.nan
    return center[:, None], z


def _row_medians(values: stats.FloatArray) -> stats.FloatArray:
    ordered = np.sort(values, axis=1)  # NaN goes last
    known = np.isfinite(ordered).sum(axis=1)
    row = np.arange(len(ordered))
    last = np.maximum(known - 1, 0)
    middle: stats.FloatArray = (ordered[row, last // 2] + ordered[row, (last + 1) // 2]) / 2
    return middle


def _from_past(scaled: stats.FloatArray, *, log: bool) -> tuple[stats.FloatArray, stats.FloatArray]:
    """Each rank against its own past; only where the other ranks keep to theirs."""
    pasts = [stats.past_baseline(column, warmup=8) for column in scaled.T]
    usual = np.stack([past.center for past in pasts], axis=1)
    floor = LEAST_LOG_SIGMA if log else LEAST_SIGMA * np.fmax(np.abs(usual), 1e-9)
    sigma = np.fmax(np.stack([past.robust_std for past in pasts], axis=1), floor)
    z = (scaled - usual) / sigma
    outside = np.abs(z) >= INSIDE
    alone = outside.sum(axis=1) == 1
    z[~alone] = np.nan
    return usual, z


# --- words ----------------------------------------------------------------------------------------


def _groups(spells: list[_Spell], interval: int) -> list[list[_Spell]]:
    """Spells of one rank that overlap, and of several ranks that begin together."""
    groups: list[list[_Spell]] = []
    for spell in sorted(spells, key=lambda item: (item.first, item.rank)):
        home = next((group for group in groups if _belongs(spell, group, interval)), None)
        if home is None:
            groups.append([spell])
        else:
            home.append(spell)
    return groups[: stats.MOST_EPISODES]


def _belongs(spell: _Spell, group: list[_Spell], interval: int) -> bool:
    if spell.first - group[0].first <= TOGETHER * interval:
        return True
    end = max(item.last for item in group) + MERGE_ROWS * interval
    return spell.first <= end and spell.rank in {item.rank for item in group}


def _finding(run: RunContext, group: list[_Spell]) -> Finding:
    lead = min(group, key=lambda item: (item.first, -len(item.episode)))
    last = max(group, key=lambda item: item.last)
    ranks = tuple(sorted({item.rank for item in group}))
    recovered = all(item.episode.recovered for item in group)
    single = all(item.single for item in group)
    chronic = lead.episode.start == 0 and not recovered and len(lead.grid.steps) > SPAN
    mild = chronic or (single and recovered)
    return Finding(
        detector="RANK_OUTLIER",
        severity=Severity.WARNING if mild else Severity.CRITICAL,
        confidence=0.7 if mild else 0.95,
        first_bad_step=lead.first,
        last_bad_step=last.last if recovered else run.last_step,
        state="recovered" if recovered else "ended_run" if run.ended else "ongoing",
        summary=_sentence(lead, ranks),
        evidence=tuple(item for spell in group[:8] for item in _evidence(spell)),
        remedies=(
            f"look at the batch and the device of rank {_listed(ranks)} at step {lead.first:,}",
            "compare a checksum of the weights over all ranks: a copy may have diverged",
            f"restore a checkpoint from before step {lead.first:,}, without that device",
        ),
        metrics=tuple(dict.fromkeys(spell.grid.metric for spell in group)),
        ranks=ranks,
    )


def _listed(ranks: tuple[int, ...]) -> str:
    more = f" and {len(ranks) - 4} more" if len(ranks) > 4 else ""
    return ", ".join(map(str, ranks[:4])) + more


def _sentence(spell: _Spell, ranks: tuple[int, ...]) -> str:
    value, usual, before, now = _numbers(spell)
    grid = spell.grid
    against = "a median of" if len(grid.ranks) >= CROWD else "its own past of"
    who = f"Rank {ranks[0]}" if len(ranks) == 1 else f"Ranks {_listed(ranks)}"
    moved = (
        f", while the mean over ranks moved {stats.number(before)} -> {stats.number(now)}"
        if np.isfinite(before) and np.isfinite(now)
        else ""
    )
    return (
        f"{who} of {len(grid.ranks)} left the others at step {spell.first:,}: {grid.metric} "
        f"{stats.number(value)} against {against} {stats.number(usual)}{moved}."
    )


def _numbers(spell: _Spell) -> tuple[float, float, float, float]:
    """Value of the rank, what it is compared with, and the mean over ranks before and at onset."""
    grid, row = spell.grid, spell.episode.start
    usual = float(np.broadcast_to(grid.usual, grid.values.shape)[row, spell.column])
    earlier = grid.values[max(0, row - 20) : row]
    means = np.array([_mean(values) for values in earlier])
    return (
        float(grid.values[row, spell.column]),
        usual,
        stats.median(means),
        _mean(grid.values[row]),
    )


def _mean(values: stats.FloatArray) -> float:
    kept = values[np.isfinite(values)]
    return float(kept.mean()) if len(kept) else float("nan")


def _evidence(spell: _Spell) -> Iterator[Evidence]:
    value, usual, before, now = _numbers(spell)
    name, step = spell.grid.metric, spell.first
    z = float(spell.grid.z[spell.episode.start, spell.column])
    yield Evidence(name, step, value, usual, rank=spell.rank, note="onset, against the others")
    yield Evidence(name, step, z, rank=spell.rank, note="robust standard deviations off")
    if np.isfinite(now):
        known = before if np.isfinite(before) else None
        yield Evidence(name, step, now, known, note="mean over ranks, against the rows before")
