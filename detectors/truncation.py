"""TRUNCATION: many completions are cut at the length cap."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Evidence, Finding, RunContext, Severity, knob

SPAN = 5  # rows that are looked at together
LASTING = 0.8  # share of them that must be cut
SHORT_START = 3  # a start of so few rows that passes is not worth a word
PASSING = 15  # an episode of fewer rows that passes is worth knowing, no more
SATURATED = 0.85  # share of truncated completions at which a few rows are enough
EARLY = 20  # rows before which a high start may still go away
LONG_RUN = 50  # in fewer rows there is no time to wait and see
LEAST_SIGMA = 0.05
RISE = 0.25  # over the run's own past


class Truncation(Detector):
    """A large share of the completions is cut at the length cap, and it does not pass.

    What it detects
        The share of truncated completions stays high: from the first row to the last (`chronic`),
        after it had been lower (`rising`), or again after it had come down (`relapsing`).

    Why it matters
        A cut completion has no answer, so it earns nothing: groups in which all are cut give no
        gradient, and the others learn that short is good, whatever is right. It is often the root
        of zero variance and of a gradient of zero.

    How it is computed
        Rows with at least `rate` truncated completions are bad; most of five rows in a row must be.
        A run of fewer rows must be bad on all of them. The onset is walked back to where the share
        left the level of its own past. An episode that opens the run and passes is normal: at most
        info, under the variant `start`. Info, too, is an episode of a few rows that passes or whose
        share is not near 1.

    What to do
        Raise the cap if completions are good but unfinished; otherwise look for loops and missing
        end tokens. Mask truncated completions from the loss, or punish overlong ones softly.

    When it is wrong
        Some frameworks compute the share from the longest completion of the batch instead of the
        cap. With very short caps, as in small tests, a steady share below `rate` is left alone.

    References
        Yu et al., DAPO (2025), on overlong filtering. TRL `grpo_trainer.py` (clipped ratio), verl
        `metric_utils.py` (length clip ratio), OpenRLHF (truncated rate).
    """

    id = "TRUNCATION"
    severity = Severity.WARNING
    needs = (("truncation_rate",),)
    caused_by = (
        "LENGTH_EXPLOSION",
        "REPETITION_LOOP",
        "KL_BLOWUP",
        "ENTROPY_EXPLOSION",
        "ENTROPY_COLLAPSE",
        "REWARD_HACKING",
        "ZERO_VARIANCE",
    )

    rate: float = knob(0.5, "share of truncated completions that is too much", ge=0.01, le=1)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per stretch of truncated rows."""
        series = run.series("truncation_rate")
        if series is None:
            return
        steps, values = stats.measured(series)
        past = stats.past_baseline(values, above=0.25, warmup=3)
        left = stats.robust_z(values, past, LEAST_SIGMA) > 2
        share = LASTING if len(values) >= SPAN else 1.0
        found = stats.sustained(values >= self.rate, width=SPAN, share=share, gap=SPAN)
        for episode in found:
            start = stats.walk_back(left, episode.start)
            whole = stats.Episode(start, episode.end, episode.recovered)
            variant = _variant(values, whole, self.rate)
            if _worth_a_word(values, past, whole, variant):
                yield self._finding(run, steps, values, whole, variant)

    def _finding(
        self,
        run: RunContext,
        steps: stats.IntArray,
        values: stats.FloatArray,
        episode: stats.Episode,
        variant: str,
    ) -> Finding:
        first, last = int(steps[episode.start]), int(steps[episode.end])
        usual = stats.median(values[episode.rows])
        before = stats.median(values[: episode.start])
        since = "" if np.isnan(before) else f", after {before:.0%} before"
        return Finding(
            detector=self.id,
            variant=variant,
            severity=_severity(episode, variant, usual, len(values)),
            confidence=0.9 if len(episode) >= SPAN else 0.6,
            first_bad_step=first,
            last_bad_step=last if episode.recovered else run.last_step,
            state=stats.outcome(episode, ended=run.ended),
            summary=(
                f"{usual:.0%} of the completions were cut at the length cap from step {first:,} "
                f"on ({variant}){since}."
            ),
            evidence=(
                Evidence(
                    "truncation_rate", first, float(values[episode.start]), self.rate, note="onset"
                ),
                Evidence(
                    "truncation_rate",
                    None,
                    usual,
                    None if np.isnan(before) else before,
                    note="median of the episode against the median before it",
                ),
            ),
            remedies=_remedies(run, variant),
            metrics=("truncation_rate",),
        )


def _variant(values: stats.FloatArray, episode: stats.Episode, rate: float) -> str:
    opening = values[: min(SPAN, episode.start)]
    opened_high = not stats.median(opening) < rate / 2
    may_pass = episode.recovered or (episode.start > 0 and len(values) < EARLY)
    if episode.start < 2 * SPAN and opened_high and may_pass:
        return "start"
    if episode.start == 0:
        return "chronic"
    return "relapsing" if bool((opening >= rate).any()) else "rising"


def _severity(episode: stats.Episode, variant: str, usual: float, rows: int) -> Severity:
    short = len(episode) < PASSING
    unsettled = short and usual < SATURATED and rows >= LONG_RUN
    passing = variant == "start" or (short and episode.recovered)
    return Severity.INFO if passing or unsettled else Severity.WARNING


def _worth_a_word(
    values: stats.FloatArray, past: stats.Baseline, episode: stats.Episode, variant: str
) -> bool:
    """A start that passes at once, and noise around a level that is high anyway, are not."""
    if variant == "start":
        return len(episode) > SHORT_START
    before = past.center[episode.start]
    return bool(np.isnan(before) or stats.median(values[episode.rows]) >= before + RISE)


def _remedies(run: RunContext, variant: str) -> tuple[str, ...]:
    loops = "read truncated completions: loops or a missing end token need another cure than a cap"
    mask = "mask truncated completions from the loss, or punish overlong ones softly"
    cap = run.setting("max_completion_length")
    more = f"raise max_completion_length (now {cap})" if cap else "raise the length cap"
    if variant == "chronic":
        return (more, loops, mask)
    return (loops, mask, more)
