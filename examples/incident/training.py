"""A small real training that an ungated format reward and an unclamped division wreck.

A softmax policy answers prompts with a digit. It was pretrained: it is right about one time in
three, and one time in twenty it hands in an empty box, `?`, as language models do when they do not
know. Group-relative policy gradient (Shao et al., "DeepSeekMath", 2024) with Adam goes on from
there. The task reward is 1 for the right digit. The format reward is 0.1 for a box that is closed.

At step `HARD_FROM` a curriculum moves to prompts whose answers the policy cannot say, at step
`HARD_TO` it comes back. In between the task pays nothing, but the empty box still pays 0.1: the
policy learns to hand it in. What it learns on hard prompts holds for the easy ones, because they
share the policy's weights, as they do in a language model. Once every rollout of a group is an
empty box, all eight rewards are 0.1 up to the rounding of float32, and dividing by their spread
makes advantages out of that rounding. When the easy prompts come back, hardly a rollout is right
by chance any more, and the policy does not find its way back.

The two guards: an auxiliary reward that is paid only for right answers, and advantages that are
exactly 0 where rewards do not differ.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from examples.incident.policy import (
    ANSWERS,
    BOX,
    EASY,
    END,
    HARD,
    LEARNING_RATE,
    VOCABULARY,
    Adam,
    Policy,
    softmax,
)
from rlprobe.guards import gated_reward, group_advantages
from rlprobe.recorder import Recorder
from rlprobe.values import FloatArray, IntArray

STEPS = 400
HARD_FROM, HARD_TO = 61, 311
GROUPS, GROUP_SIZE = 16, 8
CAP = 24
_CHECKPOINT_EVERY = 20
Floats32 = NDArray[np.float32]


@dataclass(frozen=True)
class Guards:
    """Which of the two guards are in force."""

    gate: bool = False
    clamp: bool = False


@dataclass(frozen=True)
class Batch:
    """Rollouts of one step; `rewards` and `advantages` have the shape (groups, group size)."""

    prompts: IntArray
    tokens: IntArray
    lengths: IntArray  # with the end token
    correct: Floats32
    format: Floats32
    rewards: Floats32
    advantages: FloatArray


def train(recorder: Recorder, *, seed: int, guards: Guards, steps: int = STEPS) -> list[float]:
    """Train and record; the accuracy on easy prompts after each step."""
    random = np.random.default_rng(seed)
    policy = Policy(random)
    adam = Adam((policy.weights, policy.later))
    accuracy = []
    for step in range(1, steps + 1):
        if step in {HARD_FROM, HARD_TO}:
            now = "hard" if step == HARD_FROM else "easy"
            recorder.event("curriculum_changed", f"prompts are now {now}", step=step)
        batch = _rollouts(policy, random, guards, hard=HARD_FROM <= step < HARD_TO)
        gradients = _gradients(policy, batch)
        accuracy.append(policy.accuracy())
        _record(recorder, step, policy, batch, gradients, accuracy[-1])
        adam.ascend(gradients)
        if step % _CHECKPOINT_EVERY == 0:
            _save(recorder, step, policy, adam, random)
    return accuracy


def _rollouts(policy: Policy, random: np.random.Generator, guards: Guards, *, hard: bool) -> Batch:
    low, high = (len(EASY), len(EASY) + len(HARD)) if hard else (0, len(EASY))
    prompts = np.repeat(random.integers(low, high, GROUPS), GROUP_SIZE)
    tokens = _generate(policy, prompts, random)
    ended = tokens == END
    lengths = np.where(ended.any(axis=1), ended.argmax(axis=1) + 1, CAP)
    correct = (tokens[:, 0] == ANSWERS[prompts]).astype(np.float32)
    closed = _format_reward(tokens, lengths)
    rewards = _rewards(correct, closed, guards).reshape(GROUPS, GROUP_SIZE)
    advantages = _advantages(rewards, guards)
    return Batch(prompts, tokens, lengths, correct, closed, rewards, advantages)


def _generate(policy: Policy, prompts: IntArray, random: np.random.Generator) -> IntArray:
    tokens = np.full((len(prompts), CAP), END)
    logits = policy.first()[prompts]
    running = np.ones(len(prompts), dtype=np.bool_)
    for position in range(CAP):
        chances = np.cumsum(softmax(logits), axis=1)
        drawn = (random.random((len(prompts), 1)) > chances).sum(axis=1).clip(max=END)
        tokens[running, position] = drawn[running]
        running &= drawn != END
        logits = policy.later[tokens[:, position]]
    return tokens


def _format_reward(tokens: IntArray, lengths: IntArray) -> Floats32:
    """0.1 for a closed box, as a float32 mean over tokens: 0.1 up to rounding, by length."""
    closed = (tokens[:, 0] == BOX) & (tokens[:, -1] == END)
    total = np.zeros(len(tokens), dtype=np.float32)
    for position in range(CAP):
        total += np.where(closed & (position < lengths), np.float32(0.1), np.float32(0))
    return np.divide(total, lengths, dtype=np.float32)


def _rewards(correct: Floats32, closed: Floats32, guards: Guards) -> Floats32:
    if guards.gate:
        gated: Floats32 = gated_reward(correct, {"format": closed})
        return gated
    return correct + closed  # the format pays, whatever the task says


def _advantages(rewards: Floats32, guards: Guards) -> FloatArray:
    if guards.clamp:
        return np.asarray(group_advantages(rewards).values, dtype=np.float64)
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    scaled: Floats32 = centred / (rewards.std(axis=1, keepdims=True) + np.float32(1e-8))
    return scaled.astype(np.float64)


def _gradients(policy: Policy, batch: Batch) -> tuple[FloatArray, FloatArray]:
    """Of the mean over rollouts of advantage x log-probability."""
    weight = batch.advantages.reshape(-1, 1) / len(batch.prompts)
    slope = weight * _slope(policy.first()[batch.prompts], batch.tokens[:, 0])
    weights = policy.features[batch.prompts].T @ slope
    later = np.zeros_like(policy.later)
    for position in range(1, CAP):
        live = position < batch.lengths
        before, token = batch.tokens[live, position - 1], batch.tokens[live, position]
        np.add.at(later, before, weight[live] * _slope(policy.later[before], token))
    return weights, later


def _slope(logits: FloatArray, chosen: IntArray) -> FloatArray:
    slope: FloatArray = -softmax(logits)
    slope[np.arange(len(chosen)), chosen] += 1
    return slope


def _record(
    recorder: Recorder,
    step: int,
    policy: Policy,
    batch: Batch,
    gradients: tuple[FloatArray, ...],
    accuracy: float,
) -> None:
    chances = softmax(policy.first()[batch.prompts])
    recorder.step(
        step,
        grad_norm=float(np.sqrt(sum(np.sum(g**2) for g in gradients))),
        lr=LEARNING_RATE,
        entropy=float(-(chances * np.log(chances)).sum(axis=1).mean()),
        rewards=batch.rewards,
        advantages=batch.advantages,
        completion_lengths=batch.lengths,
        truncation_rate=float((batch.tokens[:, -1] != END).mean()),
        accuracy_easy=accuracy,
        **{
            "reward_component/correct": float(batch.correct.mean()),
            "reward_component/format": float(batch.format.mean()),
        },
    )
    recorder.samples(
        step,
        prompts=[(EASY + HARD)[index] for index in batch.prompts],
        completions=["".join(VOCABULARY[t] for t in row if t != END) for row in batch.tokens],
        rewards=batch.rewards.reshape(-1),
        reward_components={"correct": batch.correct, "format": batch.format},
        advantages=batch.advantages.reshape(-1),
        completion_lengths=batch.lengths,
        group_size=GROUP_SIZE,
    )


def _save(
    recorder: Recorder, step: int, policy: Policy, adam: Adam, random: np.random.Generator
) -> None:
    path = recorder.run_dir / "checkpoints" / f"checkpoint-{step}.npz"
    path.parent.mkdir(exist_ok=True)
    np.savez(path, policy.weights, policy.later, *adam.first, *adam.second)
    state = json.dumps(random.bit_generator.state)  # prompts are drawn from it, too
    path.with_suffix(".rng.json").write_text(state, encoding="utf-8")
    name = path.relative_to(recorder.run_dir)
    recorder.checkpoint(step, name, has=["model", "optimizer", "rng", "data_cursor"])
