"""What the catalogue recommends, as code to take: small, pure, framework-neutral.

_advantages  group advantages that are exactly 0 where rewards do not differ
_rewards     gated auxiliary rewards, length and repetition penalties
_repetition  n-gram loops while a rollout is generated
_structure   tag trees: malformed, unbalanced, runaway tags
_stopping    end a looping rollout at once
_budget      token caps with a schedule; KV-cache bytes and blocks
_update      skip optimizer steps whose gradient norm is wildly off

NumPy arrays, lists and torch tensors are taken alike; results come back as what was given.
Statistics are done in float64 on the host, so they do not depend on the order of a reduction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlprobe.guards._advantages import (
        Advantages,
        Moments,
        group_advantages,
        moments,
        pooled_std,
    )
    from rlprobe.guards._budget import CachePlan, ModelShape, TokenBudget, largest_cap, plan_cache
    from rlprobe.guards._repetition import RepetitionDetector, most_repeats, tokens_of
    from rlprobe.guards._rewards import gated_reward, length_penalty, repetition_penalty
    from rlprobe.guards._stopping import StopOnRepetition, stop_on_repetition
    from rlprobe.guards._structure import TagReport, read_tags
    from rlprobe.guards._update import UpdateGuard, UpdatesStoppedError

_HOMES = {
    "Advantages": "advantages",
    "CachePlan": "budget",
    "ModelShape": "budget",
    "Moments": "advantages",
    "RepetitionDetector": "repetition",
    "StopOnRepetition": "stopping",
    "TagReport": "structure",
    "TokenBudget": "budget",
    "UpdateGuard": "update",
    "UpdatesStoppedError": "update",
    "gated_reward": "rewards",
    "group_advantages": "advantages",
    "largest_cap": "budget",
    "length_penalty": "rewards",
    "moments": "advantages",
    "most_repeats": "repetition",
    "plan_cache": "budget",
    "pooled_std": "advantages",
    "read_tags": "structure",
    "repetition_penalty": "rewards",
    "stop_on_repetition": "stopping",
    "tokens_of": "repetition",
}

__all__ = [
    "Advantages",
    "CachePlan",
    "ModelShape",
    "Moments",
    "RepetitionDetector",
    "StopOnRepetition",
    "TagReport",
    "TokenBudget",
    "UpdateGuard",
    "UpdatesStoppedError",
    "gated_reward",
    "group_advantages",
    "largest_cap",
    "length_penalty",
    "moments",
    "most_repeats",
    "plan_cache",
    "pooled_std",
    "read_tags",
    "repetition_penalty",
    "stop_on_repetition",
    "tokens_of",
]


def __getattr__(name: str) -> Any:
    """Import a guard from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rlprobe.guards' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"rlprobe.guards._{_HOMES[name]}"), name)
