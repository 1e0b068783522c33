"""The guards on torch tensors: types, devices, 16-bit rewards, real generation, a real loop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rlprobe.guards import (
    StopOnRepetition,
    UpdateGuard,
    gated_reward,
    group_advantages,
    length_penalty,
    most_repeats,
)

pytestmark = pytest.mark.integration
torch: Any = pytest.importorskip("torch")
KINDS = ["float64", "float32", "bfloat16", "float16"]


def naive(rewards: Any) -> Any:
    """As written everywhere, in the type of the rewards."""
    return (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_type_and_device_are_kept(kind: str) -> None:
    rewards = torch.tensor([[0.0, 1.0], [0.5, 0.5]], dtype=getattr(torch, kind))
    result = group_advantages(rewards)
    assert result.values.dtype is rewards.dtype
    assert result.values.device == rewards.device
    assert result.values.reshape(-1).tolist() == pytest.approx([-1, 1, 0, 0], abs=1e-2)
    assert result.clamped.dtype is torch.bool
    assert result.clamped.tolist() == [[False, False], [True, True]]
    assert gated_reward(rewards[0], {"format": rewards[0]}).dtype is rewards.dtype
    assert length_penalty(torch.tensor([10_240])).tolist() == pytest.approx([-0.25])


def test_gradients_do_not_flow_through_a_reward() -> None:
    rewards = torch.tensor([[0.0, 1.0]], requires_grad=True)
    assert not group_advantages(rewards).values.requires_grad


@pytest.mark.parametrize("level", [1e4, -1e4, 0.1, 3.0])
def test_bf16_rewards_one_unit_apart_count_as_equal(level: float) -> None:
    one = torch.tensor(level, dtype=torch.bfloat16)
    next_one = torch.nextafter(one, torch.tensor(math.inf, dtype=torch.bfloat16))
    rewards = torch.stack([one, next_one, one, one]).reshape(1, 4)
    assert naive(rewards).abs().max() > 0.3, "what is rounding becomes an advantage"
    result = group_advantages(rewards)
    assert (result.values == 0).all()
    assert result.clamped.all()


def test_bf16_rewards_that_differ_are_not_equal() -> None:
    rewards = torch.tensor([[0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.1]], dtype=torch.bfloat16)
    result = group_advantages(rewards)
    assert not result.clamped.any()
    assert result.values[0].tolist() == pytest.approx([-1, 1, 1, -1], abs=1e-2)


def test_equal_bf16_rewards_of_large_size_are_no_signal_to_naive_code_and_ours() -> None:
    parts = torch.full((1, 8), 1e4, dtype=torch.bfloat16)
    noisy = parts + torch.tensor([[0.0, 9, 20, 28, 3, 35, 11, 40]], dtype=torch.bfloat16)
    assert noisy.unique().numel() > 1, "sums of parts land on neighbouring numbers"
    assert naive(noisy).abs().max() > 0.3
    assert (group_advantages(noisy).values == 0).all()


def test_token_ids_as_a_tensor() -> None:
    assert most_repeats(torch.arange(8).repeat(4)) == 4


def model() -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=256,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=2,
        tie_word_embeddings=False,
    )
    return transformers.LlamaForCausalLM(config).eval()


class Script:
    """A logits processor that makes row 0 say one thing for ever, and row 1 count upwards."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        scores = torch.full_like(scores, -100.0)
        scores[0, 7] = 0.0
        scores[1, (int(input_ids[1, -1]) + 1 - 3) % 60 + 3] = 0.0
        return scores


def test_a_looping_row_stops_at_once_and_the_others_go_on() -> None:
    prompts = torch.tensor([[7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7], [2] + [9] * 11])
    ids = model().generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        max_new_tokens=40,
        do_sample=False,
        logits_processor=[Script()],
        stopping_criteria=[StopOnRepetition()],
    )
    looped, counted = ids[0, 12:].tolist(), ids[1, 12:].tolist()
    assert looped[:12] == [7] * 11 + [0], "n + max_repeats tokens; the prompt does not count"
    assert 0 not in counted
    assert len(counted) == 40


def test_a_model_that_loops_in_every_row_ends_the_call() -> None:
    prompts = torch.tensor([[2, 9], [2, 9]])

    def same(input_ids: Any, scores: Any) -> Any:
        scores = torch.full_like(scores, -100.0)
        scores[:, 7] = 0.0
        return scores

    ids = model().generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        max_new_tokens=100,
        do_sample=False,
        logits_processor=[same],
        stopping_criteria=[StopOnRepetition()],
    )
    assert ids.shape[1] == 2 + 11


def test_the_update_guard_in_a_plain_loop() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    guard = UpdateGuard(warm_up=5)
    losses = []
    for step in range(60):
        inputs = torch.randn(32, 4)
        loss = ((layer(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
        (loss * (math.inf if step == 20 else 1e9 if step == 30 else 1.0)).backward()
        norm = torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        if guard.allows(float(norm)):
            optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert guard.skipped == 2
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
