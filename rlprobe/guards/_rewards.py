"""Rewards that cannot be farmed: gated auxiliaries, penalties for length and for loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlprobe.errors import UsageError
from rlprobe.guards._arrays import floats
from rlprobe.repetition import MOST_REPEATS, N, block_of, loops


def gated_reward(
    task: Any,
    auxiliaries: Mapping[str, Any],
    *,
    weights: Mapping[str, float] | None = None,
    success: float = 1.0,
    cap: float | None = None,
) -> Any:
    """The task reward, plus auxiliary rewards that are paid only where the task succeeded.

    Formula: task + sum of weight x auxiliary, the sum cut at `cap`, where task >= `success`; the
    task reward alone elsewhere.

    A format reward that is paid for wrong answers is what a policy falls back to when prompts get
    too hard: all rollouts earn it, their spread is 0, and nothing is learnt.
    Source: rewards that need both, as in DeepSeek-AI, "DeepSeek-R1" (2025), section 2.2; gating one
    by the other, and capping it, is ours (`examples/incident`).

    When not to use it: before the policy has learnt the format at all, an ungated format reward is
    what teaches it; gate it once the format is there.

    Args:
        task: task reward of each rollout, shape (B,).
        auxiliaries: further rewards by name, each of shape (B,).
        weights: factor of each auxiliary; 1 where none is given.
        success: task reward from which the task counts as solved.
        cap: largest sum of the auxiliaries, in magnitude.

    Raises:
        UsageError: shapes differ, a weight names no auxiliary, or a value is not finite.
    """
    base, _, back = floats(task, "task")
    if np.isnan(success):
        raise UsageError(f"Couldn't gate at 'success' {success}: not a number")
    _finite(base, "task")
    unknown = set(weights or {}) - set(auxiliaries)
    if unknown:
        raise UsageError(f"Couldn't weigh '{sorted(unknown)[0]}': no such auxiliary reward")
    for name, weight in (weights or {}).items():
        if not np.isfinite(weight):
            raise UsageError(f"Couldn't weigh '{name}' by {weight} in 'weights': must be finite")
    extra = np.zeros_like(base)
    for name, values in auxiliaries.items():
        added, _, _ = floats(values, name)
        if added.shape != base.shape:
            raise UsageError(
                f"Couldn't add auxiliary '{name}' of shape {added.shape} to task of {base.shape}"
            )
        _finite(added, name)
        extra = extra + (weights or {}).get(name, 1.0) * added
    if cap is not None:
        if not cap >= 0:
            raise UsageError(f"Couldn't cap at 'cap' {cap}: must not be negative")
        extra = np.clip(extra, -cap, cap)
    return back(np.asarray(base + np.where(base >= success, extra, 0.0)))


def _finite(values: NDArray[Any], name: str) -> None:
    if not np.isfinite(values).all():
        first = int(np.argmin(np.isfinite(values.reshape(-1))))
        raise UsageError(f"Couldn't use '{name}': element {first} is {values.reshape(-1)[first]}")


def length_penalty(
    length: Any, *, target: int = 4096, maximum: int = 16_384, penalty: float = -1.0
) -> Any:
    """0 up to `target` tokens, then quadratic to the full `penalty` at `maximum` and beyond.

    Formula: penalty x ((length - target) / (maximum - target))^2. Soft overlong punishment as in Yu
    et al., "DAPO" (2025), with a smooth start.

    When not to use it: reasoning gets shorter, and with it, on hard prompts, worse. Leave `target`
    well above what right answers need.

    Args:
        length: completion tokens, a number or shape (B,).

    Raises:
        UsageError: a negative or non-finite length, or `maximum` not above `target`.
    """
    values, _, back = floats(length, "length")
    if not np.isfinite(values).all() or (values < 0).any():
        raise UsageError(f"Couldn't use 'length' {length!r}: must be finite and not negative")
    if not np.isfinite(penalty):
        raise UsageError(f"Couldn't use 'penalty' {penalty}: must be finite")
    if not 0 <= target < maximum:
        raise UsageError(f"Couldn't use 'maximum' {maximum} with 'target' {target}: must be above")
    share = np.clip((values - target) / (maximum - target), 0.0, 1.0)
    result = np.asarray(penalty * share**2 + 0.0)
    return float(result) if np.ndim(length) == 0 else back(result)


def repetition_penalty(
    text_or_tokens: str | Sequence[int] | NDArray[Any],
    *,
    n: int = N,
    max_repeats: int = MOST_REPEATS,
    penalty: float = -0.5,
    block: str | None = "think",
) -> float:
    """`penalty` if some n-gram occurs more than `max_repeats` times without overlap, else 0.

    It is what REPETITION_LOOP counts: overlapping n-grams that fill half of a text are a loop, too.

    Source: n-gram penalties as in Yeo et al., "Demystifying long chain-of-thought reasoning in
    LLMs" (2025); here one sum per rollout, so that long rollouts are not punished for their length.
    A text shorter than n tokens never loops; an open block runs to the end of the text.

    When not to use it: on answers that honestly repeat (tables, code, lists).

    Args:
        block: of a text, look only inside this tag; the whole text if it has none, or for None.

    Raises:
        UsageError: neither text nor token ids, or a number below 1.
    """
    if not np.isfinite(penalty):
        raise UsageError(f"Couldn't use 'penalty' {penalty}: must be finite")
    if max_repeats < 1:
        raise UsageError(f"Couldn't allow 'max_repeats' {max_repeats}: must be at least 1")
    source = text_or_tokens
    if isinstance(source, str) and block is not None:
        source = block_of(source, block)
    return penalty if loops(source, n, max_repeats) else 0.0
