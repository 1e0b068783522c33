"""Token budgets: what a cap costs in KV cache, what cap fits, and a cap that gives way in time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlprobe.errors import UsageError


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the size of the KV cache depends on.

    bytes per token = 2 (keys and values) x layers x KV heads x head dimension x bytes per element.
    Source: Kwon et al., "PagedAttention" (2023). Models with latent attention or sliding windows
    keep less; the figure is then an upper bound.

    Attributes:
        kv_heads: of grouped-query attention, not the query heads.
        element_bytes: 2 for bf16 and fp16, 1 for fp8.
    """

    layers: int
    kv_heads: int
    head_dim: int
    element_bytes: int = 2

    def __post_init__(self) -> None:
        for name in ("layers", "kv_heads", "head_dim", "element_bytes"):
            _positive(name, getattr(self, name))

    @property
    def bytes_per_token(self) -> int:
        """Bytes of KV cache that one token takes, over all devices."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.element_bytes


@dataclass(frozen=True, slots=True)
class CachePlan:
    """KV cache of all requests at their cap.

    Attributes:
        blocks: of `block_size` tokens, as paged engines count them.
    """

    bytes: int
    blocks: int
    blocks_per_request: int


def plan_cache(
    shape: ModelShape, *, prompt: int, cap: int, concurrency: int, block_size: int = 16
) -> CachePlan:
    """What `concurrency` requests of `prompt` + `cap` tokens take at most.

    Raises:
        UsageError: a number below 1 (`prompt` may be 0).
    """
    _checked(prompt, cap=cap, concurrency=concurrency, block_size=block_size)
    blocks_each = math.ceil((prompt + cap) / block_size)
    blocks = blocks_each * concurrency
    return CachePlan(blocks * block_size * shape.bytes_per_token, blocks, blocks_each)


def largest_cap(
    shape: ModelShape, *, memory: int, prompt: int, concurrency: int, block_size: int = 16
) -> int:
    """The largest cap with which all requests fit into `memory` bytes; 0 if not even prompts do.

    Raises:
        UsageError: a number below 1 (`prompt` may be 0).
    """
    _checked(prompt, memory=memory, concurrency=concurrency, block_size=block_size)
    blocks = memory // (block_size * shape.bytes_per_token)
    return max(0, blocks // concurrency * block_size - prompt)


def _checked(prompt: int, **numbers: int) -> None:
    if prompt < 0:
        raise UsageError(f"Couldn't plan for 'prompt' {prompt}: must not be negative")
    for name, value in numbers.items():
        _positive(name, value)


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise UsageError(f"Couldn't plan for '{name}' {value}: must be at least 1")


class TokenBudget:
    """A cap per request that gives way when lengths or the cache run away, and comes back slowly.

    After each batch: above either mark the cap shrinks by a quarter, below both it grows by a
    twentieth, always within `floor` … `maximum`. Give `max_tokens` to the engine.

    Source: none, a multiplicative decrease with a slow increase as in congestion control (Chiu &
    Jain, 1989), which lowers at once and comes back without overshooting.

    When not to use it: a cap below what right answers need turns into truncation, reward 0 and
    groups without variance. Keep `floor` above the lengths of right answers.

    Args:
        mean_mark: mean completion length, as a share of the cap, above which to throttle.
        cache_mark: share of the KV cache in use above which to throttle.

    Raises:
        UsageError: `floor` above `maximum`, or a mark outside 0 … 1.
    """

    _SHRINK, _GROW = 0.75, 1.05

    def __init__(
        self, maximum: int, *, floor: int = 256, mean_mark: float = 0.7, cache_mark: float = 0.9
    ) -> None:
        if not 1 <= floor <= maximum:
            raise UsageError(f"Couldn't use 'floor' {floor}: not in 1 … 'maximum' {maximum}")
        for name, mark in (("mean_mark", mean_mark), ("cache_mark", cache_mark)):
            if not 0 < mark <= 1:
                raise UsageError(f"Couldn't use '{name}' {mark}: not in 0 … 1")
        self.maximum, self.floor = maximum, floor
        self.mean_mark, self.cache_mark = mean_mark, cache_mark
        self.max_tokens = maximum

    def update(self, mean_length: float, cache_use: float = 0.0) -> int:
        """Take a batch's mean completion length and cache use; the cap for the next batch.

        Raises:
            UsageError: a negative or non-finite number.
        """
        for name, value in (("mean_length", mean_length), ("cache_use", cache_use)):
            if not (math.isfinite(value) and value >= 0):
                raise UsageError(f"Couldn't use '{name}' {value}: must be finite, not negative")
        high = mean_length > self.mean_mark * self.max_tokens or cache_use > self.cache_mark
        wanted = self.max_tokens * (self._SHRINK if high else self._GROW)
        self.max_tokens = int(min(self.maximum, max(self.floor, math.ceil(wanted))))
        return self.max_tokens
