"""How the lab breaks a run: in its weights, its optimizer, its rollouts, its batches, its loss.

Each is a method named after the fault. `BREAKS` of a kind happen once, at the step of the fault;
others wrap a function of the trainer before training, and act from that step on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import TrainerCallback

from benchmarks.accuracy.tiny import DIGITS, END_TOKEN, FIRST_DIGIT, LONGEST, TOKENS

SPIKES = 5
IGNORED = -100


class Fault(TrainerCallback):  # type: ignore[misc]
    """Breaks the run at a step, through what the Trainer calls."""

    def __init__(self, kind: str, at: int) -> None:
        self.kind, self.at = kind, at
        self.now = 0
        self.trainer: Any = None
        self.kept: list[Any] = []

    @property
    def active(self) -> bool:
        return self.now >= self.at

    @property
    def model(self) -> Any:
        return self.trainer.accelerator.unwrap_model(self.trainer.model)

    def wrap(self, trainer: Any) -> None:
        """Take hold of a trainer, before it trains."""
        self.trainer = trainer
        places = (Rollouts, "_generate"), (Batches, "compute_loss"), (Scored, _SCORED)
        for kind, name in places:
            if hasattr(kind, self.kind):
                inner = getattr(trainer, name)
                setattr(trainer, name, getattr(kind(self), self.kind)(inner))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = kwargs["model"]
        if self.kind in {"overflow", "spikes"}:
            for weight in model.parameters():
                weight.register_hook(self._scaled)
        if self.kind == "eos_suppressed":
            model.lm_head.register_forward_hook(self._without_end)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.now = state.global_step + 1
        breaks = getattr(Breaks, self.kind, None)
        if self.now == self.at and breaks is not None:
            with torch.no_grad():
                breaks(self, **kwargs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.kind == "nan_weight" and state.global_step == self.at:
            with torch.no_grad():
                kwargs["model"].lm_head.weight[3, 5] = float("nan")

    def _scaled(self, grad: torch.Tensor) -> torch.Tensor:
        since = self.now - self.at
        if self.kind == "overflow":
            return grad * 1e30 * 1e30 if since == 0 else grad
        return grad * 100 if since in range(0, 7 * SPIKES, 7) else grad

    def _without_end(self, module: Any, given: Any, logits: torch.Tensor) -> torch.Tensor:
        if not self.active:
            return logits
        blocked = torch.zeros_like(logits)
        blocked[..., END_TOKEN] = -30.0
        return logits + blocked


# --- once, at the step of the fault -------------------------------------------------------------


def _scale_rate(factor: float, lr_scheduler: Any, optimizer: Any) -> None:
    inner = getattr(lr_scheduler, "scheduler", lr_scheduler)
    inner.base_lrs = [factor * rate for rate in inner.base_lrs]
    for group in optimizer.param_groups:
        group["lr"] *= factor


class Breaks:
    """What happens once, before the step of the fault."""

    @staticmethod
    def lr_x50(fault: Fault, lr_scheduler: Any = None, optimizer: Any = None, **_: Any) -> None:
        _scale_rate(50, lr_scheduler, optimizer)

    @staticmethod
    def planned_lr_drop(
        fault: Fault, lr_scheduler: Any = None, optimizer: Any = None, **_: Any
    ) -> None:
        _scale_rate(0.1, lr_scheduler, optimizer)

    @staticmethod
    def lr_quiet(fault: Fault, optimizer: Any = None, **_: Any) -> None:
        """The optimizer steps with a hundred times the rate that the scheduler tells."""
        inner = getattr(optimizer, "optimizer", optimizer)

        def scaled(factor: float) -> Callable[..., None]:
            def change(*_: Any) -> None:
                for group in inner.param_groups:
                    group["lr"] *= factor

            return change

        inner.register_step_pre_hook(scaled(100))
        inner.register_step_post_hook(scaled(0.01))

    @staticmethod
    def moments_lost(fault: Fault, optimizer: Any = None, **_: Any) -> None:
        """The second moments are gone and the count of steps is not: no bias correction helps."""
        for state in optimizer.state.values():
            state["exp_avg_sq"].zero_()

    @staticmethod
    def clipping_off(fault: Fault, args: Any = None, **_: Any) -> None:
        fault.trainer.args.max_grad_norm = 1e9

    @staticmethod
    def norm_scaled(fault: Fault, **_: Any) -> None:
        """The last norm is four times as large, and so are the logits."""
        fault.model.model.norm.weight.mul_(4)

    @staticmethod
    def embedding_row(fault: Fault, **_: Any) -> None:
        """Rows of the embedding are overwritten: those of three digits."""
        rows = fault.model.model.embed_tokens.weight[FIRST_DIGIT : FIRST_DIGIT + 3]
        rows.copy_(torch.randn_like(rows))

    @staticmethod
    def head_rows(fault: Fault, **_: Any) -> None:
        """Rows of the output embedding are overwritten."""
        rows = fault.model.lm_head.weight[FIRST_DIGIT : FIRST_DIGIT + 3]
        rows.copy_(torch.randn_like(rows))

    @staticmethod
    def reference_replaced(fault: Fault, **_: Any) -> None:
        reference = fault.trainer.accelerator.unwrap_model(fault.trainer.ref_model)
        reference.lm_head.weight.copy_(torch.randn_like(reference.lm_head.weight) * 2)

    @staticmethod
    def beta_x100(fault: Fault, **_: Any) -> None:
        fault.trainer.beta *= 100

    @staticmethod
    def kl_sign(fault: Fault, **_: Any) -> None:
        """The distance to the reference is paid for instead of punished."""
        fault.trainer.beta = -1.0

    @staticmethod
    def temperature_0(fault: Fault, **_: Any) -> None:
        fault.trainer.generation_config.do_sample = False
        fault.trainer.generation_config.temperature = None

    @staticmethod
    def temperature_3(fault: Fault, **_: Any) -> None:
        fault.trainer.generation_config.temperature = 3.0

    @staticmethod
    def planned_temperature(fault: Fault, **_: Any) -> None:
        fault.trainer.generation_config.temperature = 0.9
        fault.trainer.temperature = 0.9

    @staticmethod
    def cap_lowered(fault: Fault, **_: Any) -> None:
        fault.trainer.generation_config.max_new_tokens = 4
        fault.trainer.max_completion_length = 4

    @staticmethod
    def planned_cap(fault: Fault, **_: Any) -> None:
        fault.trainer.generation_config.max_new_tokens = 2 * LONGEST
        fault.trainer.max_completion_length = 2 * LONGEST


# --- from that step on ----------------------------------------------------------------------------


Inner = Callable[..., Any]
_SCORED = "_generate_and_score_completions"


class _From:
    """Wraps a function of the trainer; calls it untouched before the step of the fault."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault


class Rollouts(_From):
    """What is generated."""

    def stale_weights(self, inner: Inner) -> Inner:
        """The engine generates with the weights that training began with."""
        model = self.fault.model
        old = {name: value.clone() for name, value in model.state_dict().items()}

        def generate(prompts: Any) -> Any:
            if not self.fault.active:
                return inner(prompts)
            new = {name: value.clone() for name, value in model.state_dict().items()}
            model.load_state_dict(old)
            try:
                return inner(prompts)
            finally:
                model.load_state_dict(new)

        return generate

    def same_rollouts(self, inner: Inner) -> Inner:
        """Every rollout of a group is its first: one seed for all."""
        size = self.fault.trainer.num_generations

        def generate(prompts: Any) -> Any:
            prompt_ids, ids, mask, texts, *rest = inner(prompts)
            if self.fault.active:
                ids = [ids[i - i % size] for i in range(len(ids))]
                texts = [texts[i - i % size] for i in range(len(texts))]
            return (prompt_ids, ids, mask, texts, *rest)

        return generate


class Scored(_From):
    """What is learnt from a rollout."""

    def advantage_sign(self, inner: Inner) -> Inner:
        def scored(inputs: Any) -> Any:
            out = inner(inputs)
            if self.fault.active:
                out["advantages"] = -out["advantages"]
            return out

        return scored


class Batches(_From):
    """What a supervised or preference loss is computed of."""

    def _changed(self, inner: Inner, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Inner:
        def loss(model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
            broken = self.fault.active and model.training  # evaluation stays as it is
            return inner(model, change(inputs) if broken else inputs, *rest, **named)

        return loss

    def no_labels(self, inner: Inner) -> Inner:
        def masked(inputs: dict[str, Any]) -> dict[str, Any]:
            return {**inputs, "labels": torch.full_like(inputs["labels"], IGNORED)}

        return self._changed(inner, masked)

    def label_shift(self, inner: Inner) -> Inner:
        """Labels are shifted once more than the model does it."""
        return self._changed(inner, lambda it: {**it, "labels": it["labels"].roll(-1, dims=1)})

    def one_sample(self, inner: Inner) -> Inner:
        """One sample again and again, in every row of every batch."""

        def same(inputs: dict[str, Any]) -> dict[str, Any]:
            self.fault.kept = self.fault.kept or [inputs]
            kept = self.fault.kept[0]
            return {name: part[:1].expand_as(part).contiguous() for name, part in kept.items()}

        return self._changed(inner, same)

    def data_repeated(self, inner: Inner) -> Inner:
        """The same batch again and again: a sampler that starts anew at every step."""

        def again(inputs: dict[str, Any]) -> dict[str, Any]:
            self.fault.kept = self.fault.kept or [inputs]
            return dict(self.fault.kept[0])

        return self._changed(inner, again)

    def tokenizer_mixup(self, inner: Inner) -> Inner:
        """The data was tokenized with another vocabulary: digits have each other's ids."""
        mixed = torch.arange(len(TOKENS))
        digits = slice(FIRST_DIGIT, FIRST_DIGIT + len(DIGITS))
        order = torch.randperm(len(DIGITS), generator=torch.Generator().manual_seed(0))
        mixed[digits] = mixed[digits][order]

        def mixed_up(inputs: dict[str, Any]) -> dict[str, Any]:
            labels = inputs["labels"]
            known = torch.where(labels >= 0, mixed[labels.clamp(min=0)], labels)
            return {**inputs, "input_ids": mixed[inputs["input_ids"]], "labels": known}

        return self._changed(inner, mixed_up)

    def pad_labels(self, inner: Inner) -> Inner:
        """Padding is learnt, too: short rows are mostly that."""

        def padded(inputs: dict[str, Any]) -> dict[str, Any]:
            more = LONGEST - 1
            pad = torch.nn.functional.pad
            ids = pad(inputs["input_ids"], (0, more))
            mask = pad(inputs["attention_mask"], (0, more))
            labels = pad(inputs["labels"], (0, more), value=0)
            labels = torch.where(mask == 0, torch.zeros_like(labels), labels)
            return {"input_ids": ids, "attention_mask": torch.ones_like(mask), "labels": labels}

        return self._changed(inner, padded)

    def planned_batch(self, inner: Inner) -> Inner:
        """Half the batch, as planned."""

        def half(inputs: dict[str, Any]) -> dict[str, Any]:
            return {name: part[: len(part) // 2] for name, part in inputs.items()}

        def loss(model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
            if not self.fault.active:
                return inner(model, inputs, *rest, **named)
            named.pop("num_items_in_batch", None)
            return inner(model, half(inputs), *rest, **named)

        return loss

    def swapped(self, inner: Inner) -> Inner:
        """The rejected answer is taken for the chosen one."""

        def other(part: torch.Tensor) -> torch.Tensor:
            chosen, rejected = part.chunk(2)
            return torch.cat([rejected, chosen])

        return self._changed(inner, lambda it: {name: other(part) for name, part in it.items()})

    def pairs_equal(self, inner: Inner) -> Inner:
        """Both answers of a pair are the chosen one."""

        def both(part: torch.Tensor) -> torch.Tensor:
            chosen, _ = part.chunk(2)
            return torch.cat([chosen, chosen])

        return self._changed(inner, lambda it: {name: both(part) for name, part in it.items()})

    def accumulation(self, inner: Inner) -> Inner:
        """The losses of eight micro-batches are summed, not averaged."""

        def loss(*given: Any, **named: Any) -> Any:
            out = inner(*given, **named)
            return out * 8 if self.fault.active else out

        return loss
