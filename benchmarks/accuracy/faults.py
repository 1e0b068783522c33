"""The faults of the lab: what is broken, and what a scan may call it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Fault:
    """One kind of run.

    Attributes:
        expected: ids of which at least one must be reported, at the step of the fault; none for a
            healthy run.
        options: command line of `training`, besides output, fault, seed and steps.
        in_log: whether the trainer's own log can show it.
        restarts: the run is stopped at the fault and resumed.
    """

    name: str
    expected: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    in_log: bool = True
    restarts: bool = False
    interval: int = 1
    why: str = field(default="", compare=False)

    @property
    def healthy(self) -> bool:
        return not self.expected


_FAST = ("--lr", "3e-3")  # the policy follows what is paid within the rest of the run
_NAN = ("GRAD_PATHOLOGY", "NONFINITE_METRIC", "CRASH")
_FLAT = ("ZERO_VARIANCE", "FORMAT_GAMING", "REWARD_COLLAPSE", "ADVANTAGE_NOISE")
_LONG = ("LENGTH_EXPLOSION", "TRUNCATION")
_LEFT = ("KL_BLOWUP", "ENTROPY_COLLAPSE", "ENTROPY_EXPLOSION", "REWARD_COLLAPSE", "DIVERGENCE")

FAULTS = (
    Fault("nan_weight", _NAN, in_log=False, why="a weight turns NaN; generation dies of it"),
    Fault("overflow", _NAN, why="gradients overflow on one step"),
    Fault("spikes", ("GRAD_PATHOLOGY", "LOSS_SPIKE"), why="five gradients of 100 times their size"),
    Fault("lr_x50", (*_LEFT, *_LONG, "GRAD_PATHOLOGY", "LOSS_SPIKE", "ZERO_VARIANCE"), _FAST),
    Fault("dead_verifier", _FLAT, why="the task reward is 0 from then on"),
    Fault("hard_prompts", _FLAT, why="all but one prompt of a batch can no longer be solved"),
    Fault(
        "length_reward", ("REWARD_HACKING", *_LONG, "ZERO_VARIANCE"), _FAST, why="length is paid"
    ),
    Fault(
        "repetition_reward",
        ("REWARD_HACKING", "REPETITION_LOOP", "ENTROPY_COLLAPSE", *_LONG, "ROLLOUT_DEGENERATE"),
        _FAST,
        why="saying one character again and again is paid",
    ),
    Fault(
        "sign_flip",
        ("REWARD_COLLAPSE", "REWARD_HACKING", *_LONG),
        _FAST,
        why="the reward is negated",
    ),
    Fault("reward_nan", ("NONFINITE_METRIC", "LOST_SIGNAL", *_FLAT), why="the task reward is NaN"),
    Fault(
        "reward_outliers",
        ("REWARD_HACKING", "REWARD_COLLAPSE", "GRAD_PATHOLOGY", "NONFINITE_METRIC"),
        why="one rollout earns ten thousand, on four steps",
    ),
    Fault("eos_suppressed", _LONG, why="the end token can no longer be sampled"),
    Fault("bad_rank", ("RANK_OUTLIER",), in_log=False, why="rank 2 of 4 goes off"),
    Fault(
        "lost_optimizer",
        ("RESTART_DISCONTINUITY",),
        ("--beta", "0.04"),
        restarts=True,
        in_log=False,
        why="resumed without optimizer and scheduler state",
    ),
    Fault("reference_replaced", ("KL_BLOWUP",), ("--beta", "0.04"), why="another reference model"),
    Fault(
        "temperature_0",
        ("ZERO_VARIANCE", "ROLLOUT_DEGENERATE", "REPETITION_LOOP", "ENTROPY_COLLAPSE"),
        why="sampling becomes greedy",
    ),
    Fault("healthy"),
    Fault("healthy_no_kl", options=("--beta", "0")),
    Fault("healthy_beta_0.1", options=("--beta", "0.1")),
    Fault("healthy_dr_grpo", options=("--loss-type", "dr_grpo")),
    Fault("healthy_bnpo", options=("--loss-type", "bnpo")),
    Fault("healthy_group_8", options=("--group", "8")),
    Fault("healthy_every_5", options=("--logging-steps", "5"), interval=5),
    Fault("healthy_restart", options=("--beta", "0.04"), restarts=True),
)
