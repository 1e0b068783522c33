"""A small real training: group-relative policy gradient on a softmax policy, in NumPy.

The policy writes one token at a time, from logits that depend on the prompt (first token) and on
the token before (later ones). The task reward is 1 for the right first digit. The format reward is
0.1 for an answer that ends by itself, paid whether it is right or not.
Advantages are (reward - group mean) / (group std + 1e-8), as in GRPO (Shao et al., 2024,
"DeepSeekMath").

From `HARD_FROM` on, most prompts are impossible: their answer is not in the vocabulary. All eight
rollouts of a group then earn the format reward and nothing else. Their spread is rounding noise of
float32, and the division makes advantages of ordinary size out of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rlprobe.recorder import Recorder
from rlprobe.values import FloatArray, IntArray

STEPS = 240
HARD_FROM = 150
GROUPS = 16
HARD_GROUPS = 14
GROUP_SIZE = 8
CAP = 24
VOCABULARY = "0123456789 .?"
END = len(VOCABULARY)
EASY_PROMPTS = tuple(f"{a}+{b}=" for a in range(10) for b in range(10))
HARD_PROMPTS = tuple(f"{a}/7=" for a in range(1, 7))
LEARNING_RATE = 3.0
_EPSILON = 1e-8
_CHECKPOINT_EVERY = 50


@dataclass(frozen=True)
class Batch:
    """Rollouts of one step. B = groups x group size; lengths include the end token."""

    prompts: IntArray  # (B,) index into EASY_PROMPTS + HARD_PROMPTS
    tokens: IntArray  # (B, CAP), END after the end
    lengths: IntArray  # (B,)
    rewards: FloatArray  # (groups, group size)
    correct: FloatArray  # (B,)
    format: FloatArray  # (B,)
    advantages: FloatArray  # (groups, group size)


def _initial(rows: int) -> FloatArray:
    logits = np.zeros((rows, END + 1))
    logits[:, END] = 0.7  # a token more likely than others to end: about ten tokens on average
    return logits


def _pretrained() -> FloatArray:
    """A policy that is right about one time in four on the prompts that can be solved."""
    logits = _initial(len(EASY_PROMPTS + HARD_PROMPTS))
    easy = np.arange(len(EASY_PROMPTS))
    logits[easy, _answers()[easy]] = 1.5
    return logits


@dataclass
class Policy:
    """Logits of the first token by prompt, and of later tokens by the token before."""

    first: FloatArray = field(default_factory=_pretrained)
    later: FloatArray = field(default_factory=lambda: _initial(END + 1))

    def copy(self) -> Policy:
        """An independent copy: the reference, or a checkpoint."""
        return Policy(self.first.copy(), self.later.copy())


def _softmax(logits: FloatArray) -> FloatArray:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    result: FloatArray = weights / weights.sum(axis=-1, keepdims=True)
    return result


def train(recorder: Recorder, *, seed: int = 0, steps: int = STEPS) -> Policy:
    """Train and record; returns the policy as it ended up."""
    random = np.random.default_rng(seed)
    policy, reference = Policy(), Policy()
    for step in range(1, steps + 1):
        if step == HARD_FROM:
            message = f"{HARD_GROUPS} of {GROUPS} prompts are now from the hard set"
            recorder.event("curriculum_changed", message, step=step)
        batch = _rollouts(policy, random, hard=HARD_GROUPS if step >= HARD_FROM else 0)
        gradient = _gradient(policy, batch)
        norm = float(np.sqrt(np.sum(gradient.first**2) + np.sum(gradient.later**2)))
        _record(recorder, step, batch, policy, reference, norm)
        policy.first += LEARNING_RATE * gradient.first
        policy.later += LEARNING_RATE * gradient.later
        if step % _CHECKPOINT_EVERY == 0:
            _save(recorder, step, policy)
    return policy


def _rollouts(policy: Policy, random: np.random.Generator, *, hard: int) -> Batch:
    easy = random.integers(0, len(EASY_PROMPTS), GROUPS - hard)
    impossible = len(EASY_PROMPTS) + random.integers(0, len(HARD_PROMPTS), hard)
    prompts = np.repeat(np.concatenate([impossible, easy]), GROUP_SIZE)
    tokens = _generate(policy, prompts, random)
    ended = tokens == END
    lengths = np.where(ended.any(axis=1), ended.argmax(axis=1) + 1, CAP)
    correct = (tokens[:, 0] == _answers()[prompts]).astype(np.float64)
    formatted = _format_reward(tokens, lengths)
    rewards = (correct.astype(np.float32) + formatted).reshape(GROUPS, GROUP_SIZE)
    return Batch(
        prompts=prompts,
        tokens=tokens,
        lengths=lengths,
        rewards=rewards.astype(np.float64),
        correct=correct,
        format=formatted.astype(np.float64),
        advantages=_advantages(rewards),
    )


def _answers() -> IntArray:
    """The right first token of each prompt; -1 where the vocabulary has none."""
    easy = [(int(prompt[0]) + int(prompt[2])) % 10 for prompt in EASY_PROMPTS]
    return np.array(easy + [-1] * len(HARD_PROMPTS))


def _generate(policy: Policy, prompts: IntArray, random: np.random.Generator) -> IntArray:
    tokens = np.full((len(prompts), CAP), END)
    logits = policy.first[prompts]
    running = np.ones(len(prompts), dtype=np.bool_)
    for position in range(CAP):
        cumulated = np.cumsum(_softmax(logits), axis=1)
        drawn = (random.random((len(prompts), 1)) > cumulated).sum(axis=1).clip(max=END)
        tokens[running, position] = drawn[running]
        running &= drawn != END
        logits = policy.later[tokens[:, position]]
    return tokens


def _format_reward(tokens: IntArray, lengths: IntArray) -> NDArray[np.float32]:
    """0.1 for an answer that ended by itself, as a float32 mean over its tokens."""
    ended = tokens[:, -1] == END
    total = np.zeros(len(tokens), dtype=np.float32)
    for position in range(CAP):
        total += np.where(ended & (position < lengths), np.float32(0.1), np.float32(0.0))
    return np.divide(total, lengths, dtype=np.float32)


def _advantages(rewards: NDArray[np.float32]) -> FloatArray:
    """(r - mean) / (std + 1e-8) per group, in float32: the division that this demo is about."""
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    scaled: FloatArray = centred / (rewards.std(axis=1, keepdims=True) + np.float32(_EPSILON))
    return scaled.astype(np.float64)


def _gradient(policy: Policy, batch: Batch) -> Policy:
    """Gradient of the mean over rollouts of advantage x log-probability."""
    gradient = Policy(np.zeros_like(policy.first), np.zeros_like(policy.later))
    weight = batch.advantages.reshape(-1) / len(batch.prompts)
    _accumulate(gradient.first, policy.first, batch.prompts, batch.tokens[:, 0], weight)
    for position in range(1, CAP):
        live = position < batch.lengths
        before, token = batch.tokens[live, position - 1], batch.tokens[live, position]
        _accumulate(gradient.later, policy.later, before, token, weight[live])
    return gradient


def _accumulate(
    into: FloatArray, logits: FloatArray, rows: IntArray, chosen: IntArray, weight: FloatArray
) -> None:
    slope = -_softmax(logits[rows])
    slope[np.arange(len(rows)), chosen] += 1
    np.add.at(into, rows, weight[:, None] * slope)


def _record(
    recorder: Recorder, step: int, batch: Batch, policy: Policy, reference: Policy, norm: float
) -> None:
    log_probability = np.log(_softmax(policy.first))[batch.prompts, batch.tokens[:, 0]]
    recorder.step(
        step,
        loss=float(-(batch.advantages.reshape(-1) * log_probability).mean()),
        grad_norm=norm,
        lr=LEARNING_RATE,
        kl_mean=_kl(policy, reference, batch),
        entropy=_entropy(policy, batch),
        rewards=batch.rewards,
        advantages=batch.advantages,
        completion_lengths=batch.lengths,
        truncation_rate=float((batch.tokens[:, -1] != END).mean()),
        **{
            "reward_component/correct": float(batch.correct.mean()),
            "reward_component/format": float(batch.format.mean()),
        },
    )
    prompts = EASY_PROMPTS + HARD_PROMPTS
    recorder.samples(
        step,
        prompts=[prompts[index] for index in batch.prompts],
        completions=[_text(row) for row in batch.tokens],
        rewards=batch.rewards.reshape(-1),
        reward_components={"correct": batch.correct, "format": batch.format},
        advantages=batch.advantages.reshape(-1),
        completion_lengths=batch.lengths,
        truncated=batch.tokens[:, -1] != END,
        group_size=GROUP_SIZE,
    )


def _text(tokens: IntArray) -> str:
    return "".join(VOCABULARY[token] for token in tokens if token != END)


def _kl(policy: Policy, reference: Policy, batch: Batch) -> float:
    """Mean over the first and second token of the exact KL to the reference, nats."""
    first = _divergence(policy.first, reference.first)[batch.prompts]
    later = _divergence(policy.later, reference.later)[batch.tokens[:, 0]]
    return float(0.5 * (first.mean() + later.mean()))


def _divergence(logits: FloatArray, other: FloatArray) -> FloatArray:
    p, q = _softmax(logits), _softmax(other)
    result: FloatArray = (p * np.log(p / q)).sum(axis=-1)
    return result


def _entropy(policy: Policy, batch: Batch) -> float:
    p = _softmax(policy.first)[batch.prompts]
    return float(-(p * np.log(p)).sum(axis=-1).mean())


def _save(recorder: Recorder, step: int, policy: Policy) -> None:
    path = recorder.run_dir / "checkpoints" / f"checkpoint-{step}.npz"
    path.parent.mkdir(exist_ok=True)
    np.savez(path, first=policy.first, later=policy.later)
    has, lacks = ["model", "optimizer"], ["rng", "data_cursor"]
    recorder.checkpoint(step, path.relative_to(recorder.run_dir), has=has, lacks=lacks)
