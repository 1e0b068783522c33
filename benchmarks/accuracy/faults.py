"""The faults of the lab: what is broken, and what a scan may call it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Fault:
    """One kind of run.

    Attributes:
        name: of the run: the fault, after the trainer where that is not GRPO.
        kind: what `breaking`, `rewards` or `ppo` calls it; the name unless given.
        expected: ids of which at least one must be reported, at the step of the fault; none for a
            healthy run, also one that changes on purpose (`planned_…`): info is no alarm.
        options: command line of `training`, besides output, trainer, fault, seed and steps.
        in_log: whether the trainer's own log can show it.
        restarts: the run is stopped at the fault and resumed.
        slow: nothing that is logged shows it before its harm does; any later step counts.
    """

    name: str
    expected: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    trainer: str = "grpo"
    kind: str = ""
    in_log: bool = True
    restarts: bool = False
    slow: bool = False
    interval: int = 1
    why: str = field(default="", compare=False)

    @property
    def healthy(self) -> bool:
        return not self.expected

    @property
    def breaks(self) -> str:
        return self.kind or self.name


_CALM = ("--lr", "1e-3")  # than the 3e-3 with which GRPO learns its task within 60 steps
_STEADY = ("--schedule", "constant")  # a rate near 0 at the end would hide what happens
_EVALUATED = ("--evaluate", "5")
_TRUE_KL = ("--beta", "0.04")
_NAN = ("GRAD_PATHOLOGY", "NONFINITE_METRIC", "CRASH")
_FLAT = ("ZERO_VARIANCE", "FORMAT_GAMING", "REWARD_COLLAPSE", "ADVANTAGE_NOISE", "NO_LEARNING")
_LONG = ("LENGTH_EXPLOSION", "TRUNCATION")
_LEFT = ("KL_BLOWUP", "ENTROPY_COLLAPSE", "ENTROPY_EXPLOSION", "REWARD_COLLAPSE", "DIVERGENCE")
_JUMP = ("REGIME_CHANGE", "GRAD_PATHOLOGY", "LOSS_SPIKE")
_BROKEN = (*_LEFT, *_JUMP, *_LONG, "LENGTH_COLLAPSE", "ZERO_VARIANCE", "POLICY_MISMATCH")
_LOSS = ("DIVERGENCE", "LOSS_SPIKE", "REGIME_CHANGE", "GRAD_PATHOLOGY", "ENTROPY_EXPLOSION")
_PREFERENCE = (*_LOSS, "PREFERENCE_COLLAPSE", "REWARD_COLLAPSE")
_SEEN = ("OVERFIT", "ENTROPY_COLLAPSE", "DATA_REPLAY", "DIVERGENCE", "REGIME_CHANGE")
_DEAD = ("DEAD_GRADIENT", "NO_LEARNING", "NONFINITE_METRIC", "LOST_SIGNAL", "GRAD_PATHOLOGY")

GRPO = (
    Fault("nan_weight", _NAN, in_log=False, why="a weight turns NaN; generation dies of it"),
    Fault("overflow", _NAN, why="gradients overflow on one step"),
    Fault("spikes", ("GRAD_PATHOLOGY", "LOSS_SPIKE"), why="five gradients of 100 times their size"),
    Fault("lr_x50", (*_LEFT, *_LONG, *_JUMP, "ZERO_VARIANCE")),
    Fault("dead_verifier", _FLAT, why="the task reward is 0 from then on"),
    Fault("hard_prompts", _FLAT, why="all but one prompt of a batch can no longer be solved"),
    Fault("length_reward", ("REWARD_HACKING", *_LONG, "ZERO_VARIANCE"), why="length is paid"),
    Fault(
        "repetition_reward",
        ("REWARD_HACKING", "REPETITION_LOOP", "ENTROPY_COLLAPSE", *_LONG, "ROLLOUT_DEGENERATE"),
        why="saying one character again and again is paid",
    ),
    Fault(
        "sign_flip",
        ("REWARD_COLLAPSE", "REWARD_HACKING", *_LONG, "REGIME_CHANGE"),
        why="the reward is negated",
    ),
    Fault("reward_nan", ("NONFINITE_METRIC", "LOST_SIGNAL", *_FLAT), why="the task reward is NaN"),
    Fault(
        "reward_outliers",
        ("REWARD_HACKING", "REWARD_COLLAPSE", "GRAD_PATHOLOGY", "NONFINITE_METRIC"),
        why="one rollout earns ten thousand, on four steps",
    ),
    Fault("eos_suppressed", (*_LONG, "REGIME_CHANGE"), why="the end token cannot be sampled"),
    Fault("bad_rank", ("RANK_OUTLIER",), in_log=False, why="rank 2 of 4 goes off"),
    Fault(
        "lost_optimizer",
        ("RESTART_DISCONTINUITY",),
        _TRUE_KL,
        restarts=True,
        in_log=False,
        why="resumed without optimizer and scheduler state",
    ),
    Fault(
        "reference_replaced",
        ("KL_BLOWUP", "REGIME_CHANGE"),
        _TRUE_KL,
        why="another reference model",
    ),
    Fault(
        "temperature_0",
        ("ZERO_VARIANCE", "ROLLOUT_DEGENERATE", "REPETITION_LOOP", "ENTROPY_COLLAPSE"),
        why="sampling becomes greedy",
    ),
    Fault("temperature_3", _BROKEN, why="sampling becomes hot"),
    Fault("moments_lost", _BROKEN, _STEADY, why="the optimizer forgets its second moments"),
    Fault("lr_quiet", _BROKEN, _STEADY, why="a hundred times the learning rate that is logged"),
    Fault("advantage_sign", _BROKEN, slow=True, why="advantages are negated"),
    Fault("stale_weights", _BROKEN, why="generates with the weights of the first step"),
    Fault("same_rollouts", ("ZERO_VARIANCE", "ROLLOUT_DEGENERATE"), why="one seed for a group"),
    Fault("norm_scaled", _BROKEN, _STEADY, why="logits times four"),
    Fault("head_rows", _BROKEN, _STEADY, why="what three digits are told by is overwritten"),
    Fault("beta_x100", _BROKEN, _STEADY, why="KL coefficient 0.04 -> 4"),
    Fault("kl_sign", _BROKEN, _STEADY, why="distance to the reference is paid"),
    Fault("cap_lowered", (*_BROKEN, "LENGTH_COLLAPSE"), why="at most 4 tokens instead of 24"),
    Fault(
        "reward_delayed",
        (*_BROKEN, "NO_LEARNING", "REWARD_HACKING"),
        _STEADY,
        slow=True,
        why="paid is what the batch before earned",
    ),
    Fault(
        "verifier_noise",
        (*_BROKEN, "NO_LEARNING", "REWARD_HACKING"),
        _STEADY,
        why="noise of three times the reward's range",
    ),
)

OTHERS = (
    Fault("rloo_dead_verifier", _FLAT, trainer="rloo", kind="dead_verifier"),
    Fault(
        "rloo_advantage_sign", _BROKEN, trainer="rloo", kind="advantage_sign", slow=True
    ),
    Fault("rloo_kl_sign", _BROKEN, _STEADY, trainer="rloo", kind="kl_sign"),
    Fault("rloo_stale_weights", _BROKEN, trainer="rloo", kind="stale_weights"),
    Fault(
        "ppo_value_reset",
        ("VALUE_DIVERGENCE", *_BROKEN),
        _CALM,
        trainer="ppo",
        kind="value_reset",
        why="the value head is drawn anew",
    ),
    Fault(
        "ppo_reward_scale",
        ("VALUE_DIVERGENCE", *_BROKEN, "REWARD_HACKING"),
        _CALM,
        trainer="ppo",
        kind="reward_scale",
    ),
    Fault("ppo_advantage_sign", _BROKEN, _CALM, trainer="ppo", kind="advantage_sign", slow=True),
    Fault("ppo_dead_verifier", _FLAT, _CALM, trainer="ppo", kind="dead_verifier"),
    Fault("dpo_swapped", _PREFERENCE, _CALM, trainer="dpo", kind="swapped"),
    Fault(
        "dpo_pairs_equal", (*_PREFERENCE, *_DEAD), _CALM, trainer="dpo", kind="pairs_equal",
        why="both answers are the same",
    ),
    Fault("dpo_reference_replaced", _PREFERENCE, _CALM, trainer="dpo", kind="reference_replaced"),
    Fault("dpo_beta_x100", _PREFERENCE, _CALM, trainer="dpo", kind="beta_x100"),
    Fault("dpo_lr_quiet", (*_PREFERENCE, *_LEFT), _CALM, trainer="dpo", kind="lr_quiet"),
    Fault("sft_moments_lost", _LOSS, trainer="sft", kind="moments_lost"),
    Fault("sft_lr_quiet", _LOSS, trainer="sft", kind="lr_quiet"),
    Fault(
        "sft_clipping_off",
        (*_LOSS, *_NAN),
        ("--optimizer", "sgd", "--lr", "20", "--clip", "0.02", *_STEADY),
        trainer="sft",
        kind="clipping_off",
        why="gradients that were always clipped are not any more",
    ),
    Fault("sft_no_labels", (*_DEAD, *_LOSS), trainer="sft", kind="no_labels"),
    Fault("sft_label_shift", _LOSS, trainer="sft", kind="label_shift"),
    Fault(
        "sft_one_sample", _SEEN, _EVALUATED, trainer="sft", kind="one_sample", slow=True,
        why="one sample in every row of every batch; an evaluation shows it",
    ),
    Fault(
        "sft_data_repeated", _SEEN, (*_STEADY, *_EVALUATED), trainer="sft", kind="data_repeated",
        slow=True, why="the same batch again and again; an evaluation shows it",
    ),
    Fault("sft_tokenizer_mixup", _LOSS, trainer="sft", kind="tokenizer_mixup"),
    Fault("sft_pad_labels", _LOSS, trainer="sft", kind="pad_labels"),
    Fault("sft_accumulation", _LOSS, trainer="sft", kind="accumulation"),
    Fault("sft_norm_scaled", _LOSS, trainer="sft", kind="norm_scaled", why="logits times four"),
    Fault("sft_embedding_row", _LOSS, trainer="sft", kind="embedding_row"),
    Fault("sft_spikes", ("GRAD_PATHOLOGY", "LOSS_SPIKE"), trainer="sft", kind="spikes"),
)  # fmt: skip

HEALTHY = (
    Fault("healthy"),
    Fault("healthy_no_kl", options=("--beta", "0")),
    Fault("healthy_beta_0.1", options=("--beta", "0.1")),
    Fault("healthy_dr_grpo", options=("--loss-type", "dr_grpo")),
    Fault("healthy_bnpo", options=("--loss-type", "bnpo")),
    Fault("healthy_group_8", options=("--group", "8")),
    Fault("healthy_every_5", options=("--logging-steps", "5"), interval=5),
    Fault("healthy_restart", options=_TRUE_KL, restarts=True),
    Fault("healthy_rloo", trainer="rloo"),
    Fault("healthy_ppo", options=_CALM, trainer="ppo"),
    Fault("healthy_dpo", options=_CALM, trainer="dpo"),
    Fault("healthy_sft", trainer="sft"),
    Fault("healthy_sft_evaluated", options=_EVALUATED, trainer="sft"),
    Fault("planned_curriculum", why="harder questions: the reward is squared"),
    Fault("planned_lr_drop", options=_STEADY, why="a tenth of the rate, as a schedule says"),
    Fault("planned_cap", why="48 tokens instead of 24"),
    Fault("planned_scale", why="rewards are doubled"),
    Fault("planned_temperature", why="1 -> 0.9"),
    Fault("sft_planned_lr_drop", options=_STEADY, trainer="sft", kind="planned_lr_drop"),
    Fault("sft_planned_batch", trainer="sft", kind="planned_batch"),
    Fault("dpo_planned_lr_drop", options=(*_CALM, *_STEADY), trainer="dpo", kind="planned_lr_drop"),
    Fault("rloo_planned_scale", trainer="rloo", kind="planned_scale"),
    Fault("ppo_planned_curriculum", options=_CALM, trainer="ppo", kind="planned_curriculum"),
)

FAULTS = (*GRPO, *OTHERS, *HEALTHY)
