"""Budgets, against model shapes whose cache sizes are known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlprobe.errors import UsageError
from rlprobe.guards import ModelShape, TokenBudget, largest_cap, plan_cache

LLAMA_3_8B = ModelShape(layers=32, kv_heads=8, head_dim=128)
LLAMA_2_7B = ModelShape(layers=32, kv_heads=32, head_dim=128)
QWEN_32B = ModelShape(layers=64, kv_heads=8, head_dim=128)


@pytest.mark.parametrize(("shape", "kib"), [(LLAMA_3_8B, 128), (LLAMA_2_7B, 512), (QWEN_32B, 256)])
def test_bytes_per_token_of_known_models(shape: ModelShape, kib: int) -> None:
    assert shape.bytes_per_token == kib * 1024


def test_a_plan() -> None:
    plan = plan_cache(QWEN_32B, prompt=512, cap=16_384, concurrency=64)
    assert plan.blocks_per_request == (512 + 16_384) // 16
    assert plan.bytes == 64 * (512 + 16_384) * 256 * 1024


@given(
    memory=st.integers(1, 10**12),
    prompt=st.integers(0, 4000),
    concurrency=st.integers(1, 300),
)
def test_the_largest_cap_fits_and_a_larger_one_does_not(
    memory: int, prompt: int, concurrency: int
) -> None:
    cap = largest_cap(LLAMA_3_8B, memory=memory, prompt=prompt, concurrency=concurrency)
    if cap:
        fits = plan_cache(LLAMA_3_8B, prompt=prompt, cap=cap, concurrency=concurrency)
        assert fits.bytes <= memory
    more = plan_cache(LLAMA_3_8B, prompt=prompt, cap=cap + 17, concurrency=concurrency)
    assert more.bytes > memory


def test_the_cap_gives_way_and_comes_back() -> None:
    budget = TokenBudget(16_384, floor=1024)
    assert budget.update(mean_length=15_000) == 12_288
    assert budget.update(mean_length=1_000, cache_use=0.95) == 9_216
    caps = [budget.update(mean_length=1_000) for _ in range(30)]
    assert caps == sorted(caps)
    assert caps[-1] == 16_384
    for _ in range(30):
        budget.update(mean_length=99_999)
    assert budget.max_tokens == 1024


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="'layers' 0"):
        ModelShape(0, 8, 128)
    with pytest.raises(UsageError, match="'cap' 0"):
        plan_cache(QWEN_32B, prompt=0, cap=0, concurrency=1)
    with pytest.raises(UsageError, match="'prompt' -1"):
        largest_cap(QWEN_32B, memory=1, prompt=-1, concurrency=1)
    with pytest.raises(UsageError, match="'floor' 10"):
        TokenBudget(5, floor=10)
    with pytest.raises(UsageError, match="'mean_length' nan"):
        TokenBudget(500).update(math.nan)
