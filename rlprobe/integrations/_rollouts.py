"""Rollouts of TRL's online trainers (GRPO, RLOO): what was generated, and what it earned.

TRL's internals are private, so they are asked for by name, best source first:

1. `_calculate_rewards` sees this rank's prompts, completions and token ids, and returns the
   rewards of all ranks by function (TRL 0.20 and later).
2. The `_logs` deques hold prompts, completions, rewards and advantages of all ranks.

Where a rank's share consists of whole groups, each rank records its own share. Where groups are
spread over ranks, rank 0 records all of them from the gathered logs. So none is recorded twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlprobe.integrations._probes import Probes
from rlprobe.integrations._wrapping import wrap


@dataclass(slots=True)
class Mean:
    """A running mean that is taken and reset once per step."""

    total: float = 0.0
    count: int = 0

    def add(self, values: Sequence[float | None]) -> None:
        """Count these values in; None is no value."""
        known = [value for value in values if value is not None]
        self.total += math.fsum(known)
        self.count += len(known)

    def take(self) -> float | None:
        """The mean so far; start anew."""
        mean = self.total / self.count if self.count else None
        self.total, self.count = 0.0, 0
        return mean


@dataclass(frozen=True, slots=True)
class _Scored:
    """One call of `_calculate_rewards`: this rank's share, and everybody's rewards."""

    prompts: Sequence[Any]
    completions: Sequence[Any]
    token_ids: Sequence[Sequence[int]]
    rewards: Any


@dataclass(slots=True)
class _Batch:
    """Rollouts ready to be recorded."""

    prompts: Sequence[Any]
    completions: Sequence[Any]
    components: dict[str, list[float | None]]
    rewards: list[float | None]
    advantages: Any
    lengths: list[int] | None = None
    truncated: list[bool] | None = None
    logprob_means: Any = None


@dataclass
class Rollouts:
    """Records each generation of a trainer under the optimizer step that it feeds."""

    trainer: Any
    recorder: Any
    probes: Probes
    reward_mean: Mean = field(default_factory=Mean)
    length_mean: Mean = field(default_factory=Mean)
    _scored: _Scored | None = None
    _calls: int = 0

    def install(self) -> None:
        """Hook into the trainer, if it generates at all."""
        if wrap(self.trainer, "_generate_and_score_completions", self._around_generation):
            wrap(self.trainer, "_calculate_rewards", self._around_rewards)

    def _around_rewards(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        rewards = original(*args, **kwargs)
        self.probes.run("rewards", self._keep_scored, rewards, args, kwargs)
        return rewards

    def _keep_scored(self, rewards: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        names = ("inputs", "prompts", "completions", "completion_ids_list")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        ids = given.get("completion_ids_list") or ()
        self._scored = _Scored(given["prompts"], given["completions"], ids, rewards)

    def _around_generation(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        training = self.probes.run("rollouts", self._is_training)
        self._scored = None
        output = original(*args, **kwargs)
        if training:
            self.probes.run("rollouts", self._record, output)
        return output

    def _is_training(self) -> bool:
        return bool(self.trainer.model.training)

    def _record(self, output: Mapping[str, Any]) -> None:
        step = int(self.trainer.state.global_step) + 1
        group_size = int(self.trainer.num_generations)
        rank = int(self.trainer.accelerator.process_index)
        batch = self._own_share(output, rank)
        if batch is not None:
            self.reward_mean.add(batch.rewards)
            self.length_mean.add(batch.lengths or ())
        if batch is None or len(batch.completions) % group_size:
            batch = self._gathered(output) if rank == 0 else None
        self._scored = None
        if batch is None or not batch.completions:
            return
        call = self._calls
        self._calls += 1
        ids = [f"s{step}.r{rank}.c{call}.g{i // group_size}" for i in range(len(batch.completions))]
        self.recorder.samples(
            step,
            prompts=batch.prompts,
            completions=[_completion_text(item) for item in batch.completions],
            rewards=batch.rewards,
            reward_components=batch.components,
            advantages=batch.advantages,
            completion_lengths=batch.lengths,
            truncated=batch.truncated,
            group_ids=ids,
            logprob_means=batch.logprob_means,
        )

    def _own_share(self, output: Mapping[str, Any], rank: int) -> _Batch | None:
        scored = self._scored
        if scored is None:
            return None
        size = len(scored.completions)
        rows: list[list[float]] = scored.rewards[rank * size : (rank + 1) * size].tolist()
        components = dict(zip(self._names(), _columns(rows), strict=False))
        return _Batch(
            prompts=scored.prompts,
            completions=scored.completions,
            components=components,
            rewards=self._totals(rows),
            advantages=_per_completion(output.get("advantages"), size),
            lengths=_lengths(output, scored.token_ids),
            truncated=self._truncated(scored.token_ids),
            logprob_means=_logprob_means(output, size),
        )

    def _gathered(self, output: Mapping[str, Any]) -> _Batch | None:
        logs = getattr(self.trainer, "_logs", None)
        if not isinstance(logs, Mapping) or "completion" not in logs:
            return None
        size = len(output["completion_ids"]) * int(self.trainer.accelerator.num_processes)
        components = {name: _cleaned(_last(v, size)) for name, v in logs["rewards"].items()}
        rows = [list(row) for row in zip(*components.values(), strict=True)]
        return _Batch(
            prompts=_last(logs["prompt"], size),
            completions=_last(logs["completion"], size),
            components=components,
            rewards=self._totals(rows),
            advantages=_last(logs["advantages"], size),
        )

    def _names(self) -> list[str]:
        names = getattr(self.trainer, "reward_func_names", None)
        return [str(name) for name in names or ()]

    def _totals(self, rows: Sequence[Sequence[float | None]]) -> list[float | None]:
        """Weighted sums; None where no function gave a reward."""
        if not rows:
            return []
        weights = getattr(self.trainer, "reward_weights", None)
        factors = [1.0] * len(rows[0]) if weights is None else [float(w) for w in weights]
        return [_total(row, factors) for row in rows]

    def _truncated(self, token_ids: Sequence[Sequence[int]]) -> list[bool] | None:
        ends = self._ends()
        return [bool(ids) and ids[-1] not in ends for ids in token_ids] or None

    def _ends(self) -> set[int | None]:
        trainer = self.trainer
        tokenizer = getattr(trainer, "_tokenizer", None) or trainer.processing_class
        ends = getattr(trainer, "eos_token_ids", None) or [getattr(trainer, "eos_token_id", None)]
        return {*ends, getattr(tokenizer, "eos_token_id", None), tokenizer.pad_token_id}


def _total(row: Sequence[float | None], factors: Sequence[float]) -> float | None:
    pairs = zip(row, factors, strict=True)
    known = [value * factor for value, factor in pairs if value is not None and value == value]  # noqa: PLR0124 - NaN
    return math.fsum(known) if known else None


def _cleaned(values: Sequence[float | None]) -> list[float | None]:
    """TRL writes NaN where a function had nothing to say (returned None)."""
    return [None if value is None or math.isnan(value) else value for value in values]


def _columns(rows: Sequence[Sequence[float]]) -> list[list[float | None]]:
    return [_cleaned(column) for column in zip(*rows, strict=True)]


def _last(values: Any, size: int) -> list[Any]:
    items = list(values)
    return items[max(len(items) - size, 0) :]


def _per_completion(values: Any, size: int) -> Any:
    """Advantages, if there is one per completion."""
    one_each = getattr(values, "ndim", 0) == 1 and len(values) == size
    return values if one_each else None


def _lengths(output: Mapping[str, Any], token_ids: Sequence[Sequence[int]]) -> list[int] | None:
    """Tokens that the model generated itself: those of tools do not count."""
    mask = output.get("tool_mask")
    if mask is not None:
        lengths: list[int] = mask.sum(dim=1).tolist()
        return lengths
    return [len(ids) for ids in token_ids] or None


def _logprob_means(output: Mapping[str, Any], size: int) -> Any:
    """Mean log-probability per completion, where the trainer has it anyway."""
    logprobs = output.get("sampling_per_token_logps")
    if logprobs is None:
        logprobs = output.get("old_per_token_logps")
    mask = output.get("completion_mask")
    if logprobs is None or mask is None or logprobs.shape != mask.shape:
        return None
    if logprobs.shape[0] != size:
        return None
    return (logprobs * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


def _completion_text(completion: Any) -> Any:
    """The text of a conversational completion of one plain message; anything else as it is."""
    if isinstance(completion, list) and len(completion) == 1:
        content = completion[0].get("content") if isinstance(completion[0], Mapping) else None
        if isinstance(content, str) and set(completion[0]) <= {"role", "content"}:
            return content
    return completion
