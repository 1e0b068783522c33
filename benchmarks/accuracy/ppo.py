"""PPO on the tiny model. TRL 1.16 has none any more: a loop of our own, with TRL's keys of old."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.accuracy.breaking import Fault
from benchmarks.accuracy.rewards import Task
from benchmarks.accuracy.tiny import END_TOKEN, LONGEST, PROMPTS, tiny_model, tokenizer
from rlprobe import Recorder

BATCH, EPOCHS, CLIP, LAMBDA, VALUE_WEIGHT = 32, 2, 0.2, 0.95, 0.5


@dataclass
class Batch:
    """Rollouts: what was sampled, what it earned, and what was thought of it.

    Attributes:
        mask: tokens of the answer, up to and with its end.
    """

    ids: torch.Tensor
    mask: torch.Tensor
    rewards: torch.Tensor
    old: torch.Tensor
    kl: torch.Tensor
    values: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor


class Loop:
    """A policy, its reference, and a critic of one layer on the policy's states."""

    def __init__(self, given: argparse.Namespace, fault: Fault) -> None:
        self.given, self.fault = given, fault
        self.words = tokenizer()
        self.policy = tiny_model(given.out / "model", given.seed)
        self.reference = tiny_model(given.out / "model", given.seed).eval()
        self.critic = torch.nn.Linear(self.policy.config.hidden_size, 1)
        self.task = Task(fault, BATCH)
        self.chance = np.random.default_rng(given.seed)
        weights = [*self.policy.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(weights, lr=given.lr)

    def rows(self) -> Any:
        for step in range(1, self.given.steps + 1):
            self.fault.now = step
            if self.fault.kind == "value_reset" and step == self.fault.at:
                torch.nn.init.normal_(self.critic.weight, std=1.0)
            rollouts = self._rollouts()
            yield {"step": step, **self._learn(rollouts), **_told(rollouts)}

    # --- rollouts

    def _rollouts(self) -> Batch:
        prompts = self.chance.choice(PROMPTS, BATCH).tolist()
        asked = self.words(prompts, return_tensors="pt", padding=True)
        with torch.no_grad():
            ids = self.policy.generate(
                input_ids=asked["input_ids"],
                attention_mask=asked["attention_mask"],
                max_new_tokens=LONGEST,
                do_sample=True,
            )
            start = asked["input_ids"].shape[1]
            answers = ids[:, start:]
            ended = (answers == END_TOKEN).cumsum(1)
            mask = ((ended - (answers == END_TOKEN).long()) == 0).float()
            texts = self.words.batch_decode(answers, skip_special_tokens=True)
            rewards = torch.tensor(self.task(texts))
            old, values, _ = self._judged(ids, start)
            kl = (old - _token_logps(self.reference(ids).logits, ids, start)) * mask
        batch = Batch(ids, mask, rewards, old, kl, values * mask, values, values)
        sign = -1.0 if self.fault.kind == "advantage_sign" and self.fault.active else 1.0
        advantages, batch.returns = self._advantages(batch)
        usual = advantages[mask > 0]
        batch.advantages = sign * (advantages - usual.mean()) / (usual.std() + 1e-8)
        return batch

    def _advantages(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Generalised advantage estimation, with the KL as a penalty of every token."""
        paid = -self.given.beta * batch.kl
        last = batch.mask.sum(1).long() - 1
        paid[torch.arange(len(last)), last] += batch.rewards
        gained = torch.zeros_like(paid)
        ahead = torch.zeros(len(paid))
        for token in reversed(range(paid.shape[1])):
            following = batch.values[:, token + 1] if token + 1 < paid.shape[1] else 0.0
            error = (paid[:, token] + following - batch.values[:, token]) * batch.mask[:, token]
            ahead = error + LAMBDA * ahead
            gained[:, token] = ahead
        return gained, gained + batch.values

    def _judged(self, ids: torch.Tensor, start: int) -> tuple[torch.Tensor, ...]:
        """Log-probabilities and values of the answers' tokens, and the entropy at each."""
        out = self.policy(ids, output_hidden_states=True)
        values = self.critic(out.hidden_states[-1][:, start - 1 : -1]).squeeze(-1)
        spread = torch.distributions.Categorical(logits=out.logits[:, start - 1 : -1])
        return _token_logps(out.logits, ids, start), values, spread.entropy()

    # --- learning

    def _learn(self, batch: Batch) -> dict[str, float]:
        start = batch.ids.shape[1] - batch.mask.shape[1]
        told: dict[str, float] = {}
        for _ in range(EPOCHS):
            logps, values, entropy = self._judged(batch.ids, start)
            ratio = torch.exp(logps - batch.old)
            cut = ratio.clamp(1 - CLIP, 1 + CLIP)
            gains = torch.minimum(ratio * batch.advantages, cut * batch.advantages)
            policy_loss = -_mean(gains, batch.mask)
            value_loss = 0.5 * _mean((values - batch.returns) ** 2, batch.mask)
            loss = policy_loss + VALUE_WEIGHT * value_loss
            self.optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(
                [p for group in self.optimizer.param_groups for p in group["params"]], 1.0
            )
            self.optimizer.step()
            told = {
                "ppo/loss/policy": policy_loss.item(),
                "ppo/loss/value": value_loss.item(),
                "ppo/loss/total": loss.item(),
                "ppo/policy/entropy": _mean(entropy, batch.mask).item(),
                "ppo/policy/approxkl": 0.5 * _mean((logps - batch.old) ** 2, batch.mask).item(),
                "ppo/policy/clipfrac": _mean((ratio != cut).float(), batch.mask).item(),
                "grad_norm": float(norm),
                "learning_rate": self.given.lr,
            }
        return told


def _token_logps(logits: torch.Tensor, ids: torch.Tensor, start: int) -> torch.Tensor:
    every = torch.log_softmax(logits[:, start - 1 : -1], dim=-1)
    return every.gather(2, ids[:, start:].unsqueeze(-1)).squeeze(-1)


def _mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (values * mask).sum() / mask.sum()


def _told(batch: Batch) -> dict[str, float]:
    known = batch.mask > 0
    returns, values = batch.returns[known], batch.values[known]
    lengths = batch.mask.sum(1)
    return {
        "ppo/mean_scores": batch.rewards.mean().item(),
        "ppo/std_scores": batch.rewards.std().item(),
        "objective/kl": batch.kl.sum(1).mean().item(),
        "ppo/val/var_explained": (1 - (returns - values).var() / (returns.var() + 1e-8)).item(),
        "tokens/responses_len_mean": lengths.mean().item(),
    }


def train(given: argparse.Namespace, fault: Fault) -> None:
    """Train, record each row, and leave the log as a trainer would."""
    torch.manual_seed(given.seed)
    history: list[dict[str, float]] = []
    known = {"beta": given.beta, "max_completion_length": LONGEST}
    try:
        with Recorder(
            given.out / "recording", framework="trl_ppo", algorithm="ppo", config=known
        ) as recorder:
            for row in Loop(given, fault).rows():
                history.append(row)
                recorder.step(**row)
    finally:
        state = {"global_step": len(history), "log_history": history}
        (given.out / "trainer_state.json").write_text(json.dumps(state))
