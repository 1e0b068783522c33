"""REPETITION_LOOP: rollouts say the same again and again, or their tags come apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rlprobe import repetition, stats
from rlprobe.detector import (
    Detector,
    Evidence,
    Finding,
    Inconclusive,
    Rollout,
    RunContext,
    Severity,
    knob,
)
from rlprobe.rule import first_bad_sampled, sampled_steps

OFTEN = 3  # a tag may be closed so many times
MOST_CHARACTERS = 20_000  # of the end of a text
MOST_STEPS, MOST_ROLLOUTS = 100, 48  # that are read: steps, and rollouts of each
LEAST_ROLLOUTS = 4
SPAN = 3  # sampled steps that are looked at together
RATE_SPAN = 5  # rows of a logged rate that are looked at together
LASTING = 0.6
TAGS = ("think", "answer", "reasoning", "solution")
LEFT_OUT = "characters left out"  # the recorder's mark in a shortened text


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the rollouts of one step showed.

    Attributes:
        bad: rollouts that loop (or are malformed).
        group: the whole group of the first bad one, or the first group, as sample ids.
    """

    step: int
    share: float
    bad: tuple[str, ...]
    group_id: str
    group: tuple[str, ...]


class RepetitionLoop(Detector):
    """Rollouts say the same words again and again, or their tags come apart.

    What it detects
        A share of rollouts with an 8-gram more than three times inside the reasoning (`loops`), a
        share whose tags are unbalanced or run away although they had been in order (`tags`), or a
        logged repetition rate that rises and stays (`rate`).

    Why it matters
        A policy that loops fills the context up to the cap: the step takes many times as long, the
        rewards become equal, and nothing is learnt from it. It comes before the length explodes.

    How it is computed
        Texts are cut into words; where a script or a text has no spaces, into characters. Counted
        are occurrences that do not overlap; in a short text an 8-gram that fills half of it is
        enough. The reasoning is what stands inside `<think>`, else the whole text. A step is bad
        with `share` of such rollouts and twice the share of the run's own past; most of three
        recorded steps in a row must be. The first bad step is then looked for between recorded
        steps. `tags` leaves out truncated rollouts.

    What to do
        Read the linked rollouts. Stop generation on repetition, punish it in the reward, and find
        out what pays for it: a length reward, noise in the advantages, a policy that has collapsed.

    When it is wrong
        Base models loop in their first steps; a share that falls is no finding. Tables and code
        repeat themselves; few rollouts of a step do so at once.

    References
        Holtzman et al., The Curious Case of Neural Text Degeneration (2020). Welleck et al.,
        Neural Text Generation with Unlikelihood Training (2020).
    """

    id = "REPETITION_LOOP"
    severity = Severity.CRITICAL
    facts_only = True
    needs = (("samples",), ("repetition_rate",))
    caused_by = (
        "KL_BLOWUP",
        "ADVANTAGE_NOISE",
        "GRAD_PATHOLOGY",
        "ENTROPY_COLLAPSE",
        "REWARD_HACKING",
        "FORMAT_GAMING",
        "POLICY_MISMATCH",
    )

    share: float = knob(0.4, "share of rollouts of a step that is bad", minimum=0.05, maximum=1)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """The logged rate, then loops in rollouts, then tags."""
        yield from self._rate(run)
        read = {
            step: _texts(run, step) for step in sampled_steps(run.sample_steps(), MOST_STEPS, SPAN)
        }
        if read and not any(read.values()):
            raise Inconclusive("rollouts are recorded without their texts")
        for variant, is_bad in (("loops", _loops), ("tags", _malformed)):
            seen = [item for step, texts in read.items() for item in _look(step, texts, is_bad)]
            yield from self._episodes(run, seen, variant, is_bad)

    def _episodes(
        self, run: RunContext, seen: list[_Seen], variant: str, is_bad: Callable[[Rollout], bool]
    ) -> Iterator[Finding]:
        shares = np.array([item.share for item in seen])
        past = stats.past_baseline(shares, above=0.2, warmup=2).center
        usual = np.nan_to_num(past)
        bad = (shares >= self.share) & (shares >= 2 * usual)
        if variant == "tags":
            bad &= past <= 0.1
        for episode in stats.persistent(bad, width=SPAN, share=LASTING, gap=SPAN):
            if len(episode) < min(2, len(seen)) or (episode.start == 0 and episode.recovered):
                continue
            before = seen[episode.start - 1] if episode.start else None
            first = self._first(run, before, seen[episode.start], is_bad)
            yield _finding(
                run, variant, first, seen[episode.rows], before, recovered=episode.recovered
            )

    def _first(
        self, run: RunContext, good: _Seen | None, bad: _Seen, is_bad: Callable[[Rollout], bool]
    ) -> _Seen:
        def look(step: int) -> _Seen | None:
            found = next(_look(step, _texts(run, step), is_bad), None)
            return found if found is not None and found.share >= self.share else None

        return first_bad_sampled(
            run, good.step if good else None, bad, lambda seen: seen.step, look
        )

    def _rate(self, run: RunContext) -> Iterator[Finding]:
        series = run.series("repetition_rate")
        if series is None:
            return
        steps, values = stats.measured(series)
        past = stats.past_baseline(values, above=0.15, warmup=3)
        bad = (values >= self.share) & ~(values < 2 * past.center)
        outside = stats.robust_z(values, past, 0.03) > 3
        for found in stats.persistent(bad, width=RATE_SPAN, share=0.8, gap=RATE_SPAN):
            if found.start == 0 and found.recovered:
                continue
            start = stats.extend_back(outside, found.start)
            yield _rate_finding(
                run, steps, values, stats.Episode(start, found.end, found.recovered)
            )


# --- texts ----------------------------------------------------------------------------------------


def _loops(rollout: Rollout) -> bool:
    return repetition.loops(repetition.block_of(rollout.completion or "")[-MOST_CHARACTERS:])


def _malformed(rollout: Rollout) -> bool:
    text = rollout.completion or ""
    if rollout.truncated or LEFT_OUT in text:
        return False
    for tag in TAGS:
        opened, closed = text.count(f"<{tag}>"), text.count(f"</{tag}>")
        opened_by_prompt = opened == 0 and closed == 1
        if (opened != closed and not opened_by_prompt) or closed > OFTEN:
            return not _loops(rollout)  # a loop is never closed: that is one finding, not two
    return False


# --- steps ----------------------------------------------------------------------------------------


def _texts(run: RunContext, step: int) -> list[Rollout]:
    return [rollout for rollout in run.rollouts(step) if rollout.completion][:MOST_ROLLOUTS]


def _look(
    step: int, rollouts: Sequence[Rollout], is_bad: Callable[[Rollout], bool]
) -> Iterator[_Seen]:
    if len(rollouts) < LEAST_ROLLOUTS:
        return
    bad = [rollout for rollout in rollouts if is_bad(rollout)]
    group = (bad or rollouts)[0].group_id
    members = tuple(rollout.sample_id for rollout in rollouts if rollout.group_id == group)
    share = len(bad) / len(rollouts)
    yield _Seen(step, share, tuple(rollout.sample_id for rollout in bad), group, members)


# --- words ----------------------------------------------------------------------------------------

_SAID = {"loops": "repeat an 8-gram more than three times", "tags": "have tags out of order"}
_REMEDIES = (
    "read the linked rollouts beside the healthy group, and look for what pays for it",
    "stop generation on repetition (rlprobe.guards.StopOnRepetition), give such rollouts no reward",
    "go back to a checkpoint from before it: a policy that loops seldom recovers",
)


def _finding(
    run: RunContext,
    variant: str,
    first: _Seen,
    seen: Sequence[_Seen],
    before: _Seen | None,
    *,
    recovered: bool,
) -> Finding:
    share = float(np.mean([item.share for item in seen]))
    evidence = [
        Evidence(
            "samples",
            first.step,
            first.share,
            None if before is None else before.share,
            note=f"share of rollouts; see the whole group {first.group_id}",
        ),
        Evidence("samples", None, share, note="mean share over the recorded steps of it"),
    ]
    healthy: tuple[str, ...] = ()
    if before is not None:
        healthy = before.group
        note = f"share before it; compare with group {before.group_id}"
        evidence.append(Evidence("samples", before.step, before.share, note=note))
    heavy = not recovered and share >= 0.5 and variant == "loops"
    return Finding(
        detector="REPETITION_LOOP",
        variant=variant,
        severity=Severity.CRITICAL if heavy else Severity.WARNING,
        confidence=0.85 if len(seen) >= SPAN else 0.7,
        first_bad_step=first.step,
        last_bad_step=seen[-1].step if recovered else run.last_step,
        state="recovered" if recovered else "ended_run" if run.ended else "ongoing",
        summary=(
            f"{share:.0%} of the recorded rollouts {_SAID[variant]} from step {first.step:,} on."
        ),
        evidence=tuple(evidence),
        remedies=_REMEDIES,
        samples=(*first.group, *healthy),
    )


def _rate_finding(
    run: RunContext, steps: stats.IntArray, values: stats.FloatArray, episode: stats.Episode
) -> Finding:
    first, last = int(steps[episode.start]), int(steps[episode.end])
    usual = stats.median(values[episode.rows])
    before = stats.median(values[: episode.start])
    heavy = not episode.recovered and usual >= 0.5
    return Finding(
        detector="REPETITION_LOOP",
        variant="rate",
        severity=Severity.CRITICAL if heavy else Severity.WARNING,
        confidence=0.85,
        first_bad_step=first,
        last_bad_step=last if episode.recovered else run.last_step,
        state=stats.outcome(episode, ended=run.ended),
        summary=f"{usual:.0%} of the rollouts repeat themselves from step {first:,} on.",
        evidence=(
            Evidence(
                "repetition_rate",
                first,
                usual,
                None if np.isnan(before) else before,
                note="median of the episode against the median before",
            ),
        ),
        remedies=_REMEDIES,
        metrics=("repetition_rate",),
    )
