"""REPETITION_LOOP: rollouts say the same again and again, or their tags come apart."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence

from rlprobe import repetition
from rlprobe.detector import (
    Detector,
    Evidence,
    Finding,
    Inconclusive,
    Rollout,
    RunContext,
    Severity,
    fixed,
    knob,
    rule,
)
from rlprobe.rule import (
    SINCE,
    Judged,
    Levels,
    Period,
    Sampled,
    Shown,
    Signal,
    Stretch,
    finding,
    known,
)

Texts = Sequence[Rollout]
LEFT_OUT = "characters left out"  # the recorder's mark in a shortened text
SAID = {"loops": "repeat an 8-gram more than three times", "tags": "have tags out of order"}
REMEDIES = (
    "read the linked rollouts beside the healthy group, and look for what pays for it",
    "stop generation on repetition (rlprobe.guards.StopOnRepetition), give such rollouts no reward",
    "go back to a checkpoint from before it: a policy that loops seldom recovers",
)


class RepetitionLoop(Detector):
    """Rollouts say the same words again and again, or their tags come apart.

    What it detects
        Rollouts with an 8-gram more than three times inside a block of the reasoning, or that go
        round in circles after it; rollouts whose tags are unbalanced or run away although they had
        been in order; or a logged repetition rate that rises and stays.

    Why it matters
        A policy that loops fills the context up to the cap: the step takes many times as long, the
        rewards become equal, and nothing is learnt from it. It comes before the length explodes.

    How it is computed
        Texts are cut into words; where a script or a text has no spaces, into characters. A step is
        bad with `share` of such rollouts and twice the share of the run's own past; most of three
        recorded steps in a row must be, and a start that passes is left out. The first bad step is
        then looked for between the steps that were read. It is a warning, and critical where half
        of the rollouts are so to the end of the run, save for `tags`.

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
    stage = "rollout"
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

    texts = fixed(4, "rollouts with texts that a step needs")
    texts_read = fixed(48, "rollouts of a step that are read")
    characters = fixed(20_000, "of the end of each part of a text that are read")
    tags = fixed(("think", "answer", "reasoning", "solution"), "tags that are counted")
    closed = fixed(3, "times that a tag may be closed")
    in_order = fixed(0.1, "share of such rollouts up to which tags had been in order")
    heavy = fixed(0.5, "share of rollouts that may make it critical")
    least_std = fixed(0.03, "no logged rate is steadier")
    blocks = fixed(8, "blocks of five rows or more that show a slow rise of a logged rate")
    grown = fixed(3, "times the rate of the beginning, that a slow rise must reach")
    left = fixed(0.1, "part of a slow rise below which it had not begun")
    noises = fixed(3, "times the scatter of the blocks, below which it had not begun")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """The logged rate, then loops in rollouts, then tags."""
        yield from [*self._rate(run)] or self._slow(run)
        texts = functools.cache(functools.partial(self._texts, run))
        for variant, is_bad in (("loops", self._loops), ("tags", self._tags)):
            sampled = Sampled.of(run, functools.partial(self._shown, texts, is_bad))
            if sampled.steps and not any(map(texts, sampled.steps)):
                raise Inconclusive("rollouts are recorded without their texts")
            past = sampled.shares.past(above=0.2, warmup=2)
            bad = (sampled.shares.values >= self.share) & ~past.under(2)
            if variant == "tags":
                bad &= past.level <= self.in_order
            for episode in sampled.episodes(bad, self.share):
                yield self._finding(
                    variant,
                    episode.period,
                    episode.share,
                    f"recorded rollouts {SAID[variant]}",
                    episode.evidence("share of rollouts"),
                    episode.confidence,
                    episode.samples,
                )

    @rule("loops")
    def _loops(self, rollout: Rollout) -> bool:
        """In one `<think>` block, or in a text without any, an 8-gram comes more than three times
        without overlap, or fills half with it; outside the blocks, 8-grams that come more than six
        times follow each other over half of the answer, or over 100 tokens. Rules and dots are
        no words, nor are numbers outside the blocks.
        """
        return repetition.loops_in_completion(rollout.completion or "", self.characters)

    @rule("tags")
    def _tags(self, rollout: Rollout) -> bool:
        """A tag is not closed as often as it is opened (the prompt may open it), or closed again
        and again. Truncated and shortened rollouts are left out, and those that loop. Tags must
        have been in order before.
        """
        text = rollout.completion or ""
        if rollout.truncated or LEFT_OUT in text:
            return False
        for tag in self.tags:
            opened, closed = text.count(f"<{tag}>"), text.count(f"</{tag}>")
            opened_by_prompt = opened == 0 and closed == 1
            if (opened != closed and not opened_by_prompt) or closed > self.closed:
                return not self._loops(rollout)  # a loop is never closed: one finding, not two
        return False

    @rule("rate")
    def _rate(self, run: RunContext) -> Iterator[Finding]:
        """The logged repetition rate reaches `share`, and twice its own past, on most of five rows
        in a row. The onset is walked back to where it left that past.
        """
        rate = Signal.logged(run, "repetition_rate")
        if rate is None:
            return
        past = rate.past(above=0.15, warmup=3)
        bad = (rate.values >= self.share) & ~past.under(2)
        departed = past.above(sigmas=3, floor=self.least_std)
        for stretch in Judged(rate, bad, departed).persistent():
            if stretch.sure == 0 and stretch.recovered:
                continue
            usual, before = stretch.usual, known(stretch.before())
            note = "median of the episode against the median before"
            evidence = [Evidence("repetition_rate", None, usual, before, note=note)]
            yield self._finding("rate", stretch, usual, "rollouts repeat themselves", evidence)

    @rule("slow")
    def _slow(self, run: RunContext) -> Iterator[Finding]:
        """The logged repetition rate of the last tenth of the run is half of `share` or more, and
        three times that of the first. The onset is where it left that for good.
        """
        rate = Signal.logged(run, "repetition_rate")
        levels = None if rate is None else Levels.of(rate)
        if levels is None or len(levels) < self.blocks:
            return
        begun, now = levels.beginning, levels.now
        bound = begun + max(self.left * (now - begun), self.noises * levels.noise)
        stretch = levels.above(bound)
        if stretch is not None and now >= max(self.share / 2, self.grown * begun):
            note = "median of the last tenth against the first"
            evidence = [Evidence("repetition_rate", None, now, known(begun), note=note)]
            what = "rollouts repeat themselves in the end, more and more of them"
            yield self._finding("slow", stretch, now, what, evidence)

    def _texts(self, run: RunContext, step: int) -> Texts:
        return [rollout for rollout in run.rollouts(step) if rollout.completion][: self.texts_read]

    def _shown(
        self, texts: Callable[[int], Texts], is_bad: Callable[[Rollout], bool], step: int
    ) -> Shown | None:
        rollouts = texts(step)
        if len(rollouts) < self.texts:
            return None
        bad = [rollout for rollout in rollouts if is_bad(rollout)]
        first = (bad or rollouts)[0]
        group = [rollout for rollout in rollouts if rollout.group_id == first.group_id]
        return Shown(step, len(bad) / len(rollouts), bad, group)

    def _finding(
        self,
        variant: str,
        episode: Period | Stretch,
        share: float,
        what: str,
        evidence: Iterable[Evidence | None],
        confidence: float = 0.85,
        samples: Sequence[str] = (),
    ) -> Finding:
        heavy = share >= self.heavy and not episode.recovered and variant != "tags"
        return finding(
            self,
            episode,
            f"{share:.0%} of the {what}{SINCE}.",
            variant=variant,
            severity=Severity.CRITICAL if heavy else Severity.WARNING,
            confidence=confidence,
            evidence=evidence,
            remedies=REMEDIES,
            samples=samples,
        )
