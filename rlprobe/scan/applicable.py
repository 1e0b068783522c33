"""What of the catalogue is not of this kind of training, in one line instead of many.

Training on pairs (DPO, KTO, ORPO, a reward model, …) generates nothing: it has no rollouts, no
groups, no rewards of completions, no engine. That these are not logged is no gap of the log.
"""

from __future__ import annotations

import re

from rlprobe.detector import Detector
from rlprobe.scan.context import Context

_OF_PAIRS = re.compile(r"(?i)(dpo|kto|orpo|cpo|bco|ipo|simpo|rpo|slic|rm|reward|reward_model)\w?")
_PAIRS = ("preference_accuracy", "preference_margin", "chosen_logprob")
_NAMES = ("rewards/chosen", "rewards/rejected")
# What only training on rollouts logs, or who runs an engine for them.
_OF_ROLLOUTS = re.compile(
    r"samples|reward_|reward_component/|advantage_|zero_variance|group_|filtered_group|"
    r"kl_mean|approx_kl|entropy|completion_length|truncation|clip_fraction|is_ratio|is_ess|logprob_diff|mismatch_kl|"
    r"explained_variance|value_loss|repetition_rate|kv_cache|event:preemption|event:kl_negative"
)
WHY = "not of training on pairs, which generates nothing"


def learns_from_pairs(context: Context) -> bool:
    """Whether a run learns from pairs of answers that somebody else wrote."""
    if context.sample_steps() or context.series("reward_mean") is not None:
        return False
    told = _OF_PAIRS.fullmatch((context.algorithm or "").strip())
    names = (*_PAIRS, *_NAMES)
    return bool(told) or any(context.series(name) is not None for name in names)


def not_of_this_training(detector: Detector | type[Detector], context: Context) -> str:
    """Why a detector whose needs are not met does not apply; empty where it would."""
    needs_rollouts = all(any(map(_OF_ROLLOUTS.match, group)) for group in detector.needs)
    return WHY if needs_rollouts and learns_from_pairs(context) else ""
