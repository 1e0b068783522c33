"""What kind of loss a run logs, and why that is believed: each kind is judged by rules of its own.

Keys of training loops: TRL's `sft_trainer.py` logs an entropy and a token accuracy, its
`dpo_trainer.py` accuracies and margins of rewards that are implicit; losses of policy gradients are
described in Schulman et al., Proximal policy optimization algorithms (2017).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rlprobe import stats
from rlprobe.detector import RunContext
from rlprobe.findings import Evidence
from rlprobe.rule.episodes import Stretch, stretch_from
from rlprobe.rule.signals import Signal
from rlprobe.values import FloatArray

Name = Literal["likelihood", "preference", "policy gradient", "unknown"]
Ground = tuple[Name, str]

EARLY_ROWS = 16  # rows whose median tells the size of a loss
UNTRAINED_ROWS = 5  # rows in which a model of pairs has learnt next to nothing
SURE_NATS = 1.0  # rise of a loss whose kind is not known
NEAR_BEST = 0.1  # part of its rise by which a held-out loss may be off its best
CROSS_ENTROPY = 0.1  # nats from which a loss has the size of one: 0.9 for the right token

ALGORITHMS: dict[str, Name] = {
    **dict.fromkeys(("sft", "pretraining", "pretrain", "cpt", "gkd", "distillation"), "likelihood"),
    **dict.fromkeys(("dpo", "orpo", "kto", "cpo", "simpo", "ipo", "bco"), "preference"),
    **dict.fromkeys(("onlinedpo", "xpo", "nashmd", "reward", "rm"), "preference"),
    **dict.fromkeys(("grpo", "drgrpo", "dapo", "gspo", "cispo", "rloo"), "policy gradient"),
    **dict.fromkeys(("ppo", "vapo", "reinforce", "reinforce++", "a2c"), "policy gradient"),
}
COMPANIONS: tuple[tuple[Name, tuple[str, ...]], ...] = (  # prefixes of metrics logged beside it
    ("preference", ("preference_",)),
    ("policy gradient", ("reward_", "advantage", "policy_loss", "value_loss", "clip_fraction")),
    ("likelihood", ("token_accuracy",)),
    ("policy gradient", ("approx_kl", "kl_", "mismatch_kl", "zero_variance", "completion_length")),
)
SETTINGS: tuple[tuple[Name, tuple[str, ...]], ...] = (  # settings that only such a trainer has
    ("policy gradient", ("num_generations", "cliprange", "clip_range", "epsilon_high")),
    ("likelihood", ("assistant_only_loss", "completion_only_loss", "packing")),
)
LOSS_TYPES: dict[str, Name] = {  # values of `loss_type` in TRL's configurations
    **dict.fromkeys(("nll", "dft", "chunked_nll"), "likelihood"),
    **dict.fromkeys(("sigmoid", "hinge", "ipo", "kto", "bco", "apo_zero_unpaired"), "preference"),
    **dict.fromkeys(("grpo", "bnpo", "dr_grpo", "dapo", "cispo"), "policy gradient"),
}


@dataclass(frozen=True, slots=True)
class LossKind:
    """What a loss is the loss of.

    Attributes:
        name: `likelihood` (of tokens), `preference` (of pairs), `policy gradient`, or `unknown`.
        why: what tells, in a few words.
        signed: whether it may be around or below 0, so that ratios of it mean nothing.
    """

    name: Name
    why: str
    signed: bool

    @classmethod
    def of(cls, loss: Signal) -> LossKind:
        """From the algorithm, what is logged beside it, settings, and at last its size."""
        below = bool((loss.values < 0).any())
        for name, why in _grounds(loss.run):
            if name == "likelihood" and below:
                continue
            return cls(name, why, signed=below or name == "policy gradient")
        if below:
            return cls("policy gradient", "it goes below 0", signed=True)
        size = stats.median(loss.values[:EARLY_ROWS]) if len(loss) else 0.0
        if size >= CROSS_ENTROPY:
            return cls("likelihood", "it has the size of a cross entropy", signed=False)
        return cls("unknown", "it begins near 0, and nothing else tells", signed=False)

    @property
    def tokens(self) -> bool:
        """Whether `exp(-loss)` is the typical probability of the right token."""
        return self.name == "likelihood"

    def least(self, loss: Signal, level: FloatArray) -> FloatArray:
        """What each row must be above to be bad, whatever the scatter: by its kind.

        A model of pairs that knows nothing has the loss that it began with; a loss of an unknown
        kind may hold terms that grow in any run, and must rise by a nat.
        """
        if self.name == "preference":
            return np.full(len(loss), stats.median(loss.values[:UNTRAINED_ROWS]))
        return level + SURE_NATS if self.name == "unknown" else np.full(len(loss), -np.inf)

    @property
    def told(self) -> str:
        """A sentence: as what the loss is judged, and why."""
        kind = "a loss of unknown kind" if self.name == "unknown" else f"a {self.name} loss"
        return f"Judged as {kind}: {self.why}."

    def evidence(self, loss: Signal) -> Evidence:
        """The same, with the lowest value, which belongs to what tells."""
        note = f"lowest; {self.told[0].lower()}{self.told[1:-1]}"
        return Evidence(loss.metric, None, float(loss.values.min()), note=note)


def training_loss(run: RunContext) -> Signal | None:
    """The loss that the optimizer saw, or where none was logged, its policy-gradient part."""
    for metric in ("loss", "policy_loss"):
        loss = Signal.logged(run, metric)
        if loss is not None and len(loss):
            return loss
    return None


def halved_since(held_out: Signal, *, before: int, after: int) -> Stretch | None:
    """The rows of the training loss after the last good evaluation, if it has halved over them.

    Args:
        held_out: the likelihood loss that was evaluated.
        before, after: so many rows before them, and at their end, tell its levels.
    """
    loss = Signal.logged(held_out.run, "loss", above=0)
    if loss is None or not LossKind.of(loss).tokens:
        return None
    best, now = float(held_out.values.min()), float(held_out.values[-1])
    good = np.flatnonzero(held_out.values <= best + NEAR_BEST * (now - best))
    row = int(np.searchsorted(loss.steps, held_out.steps[good[-1]], side="right"))
    if not before <= row <= len(loss) - after:
        return None
    since = stretch_from(loss, row)
    halved = 2 * stats.median(loss.values[-after:]) < since.before(before)
    return since if halved else None


def _grounds(run: RunContext) -> Iterator[Ground]:
    """What tells the kind of a run's loss, most trustworthy first."""
    algorithm = run.algorithm or ""
    name = ALGORITHMS.get(re.sub(r"[^a-z0-9+]", "", algorithm.lower()))
    if name:
        yield name, f"the algorithm is {algorithm}"
    for kind, prefixes in COMPANIONS:
        for logged in (metric for prefix in prefixes for metric in run.names(prefix)):
            yield kind, f"{logged} is logged"
            break
    loss_type = run.setting("loss_type")
    if isinstance(loss_type, str) and loss_type in LOSS_TYPES:
        yield LOSS_TYPES[loss_type], f"its loss_type is {loss_type}"
    for kind, settings in SETTINGS:
        for setting in settings:
            if run.setting(setting) is not None:
                yield kind, f"the trainer has a setting {setting}"


def held_out(run: RunContext) -> list[Signal]:
    """Likelihood losses on held-out data, in nats, that were evaluated twice or more."""
    loss, perplexity = (Signal.logged(run, metric, above=0) for metric in ("eval/loss", "eval/ppl"))
    if any(item and LossKind.of(item).signed for item in (loss, perplexity)):
        return []
    if perplexity is not None:
        perplexity = perplexity.with_values(stats.logs(perplexity.values, 1e-6))
    return [signal for signal in (loss, perplexity) if signal is not None and len(signal) > 1]
