"""Alias files: which framework a log is of, and what its keys mean there."""

from __future__ import annotations

import pytest

from rlprobe import naming


@pytest.mark.parametrize(
    ("framework", "keys"),
    [
        ("verl", ["actor/pg_loss", "critic/score/mean", "response_length/mean"]),
        ("openrlhf", ["policy_loss", "actor_grad_norm", "ppo_kl", "kl", "reward"]),
        ("slime", ["rollout/raw_reward", "train/pg_clipfrac", "train/grad_norm", "train/loss"]),
        ("prime_rl", ["loss/mean", "optim/lr", "mismatch_kl/all/mean"]),
        ("skyrl", ["policy/final_loss", "reward/avg_raw_reward"]),
        ("tinker", ["progress/done_frac", "optim/lr", "skyrl.ai/grad_norm", "reward/total"]),
        ("nemo_rl", ["train/loss", "train/gen_kl_error", "train/probs_ratio", "train/reward"]),
        ("areal", ["ppo_actor/task_reward/avg", "ppo_actor/update/approx_kl/avg"]),
        ("open_instruct", ["scores", "loss/policy_avg", "val/stop_rate"]),
        ("megatron", ["lm loss", "grad norm", "loss scale"]),
        ("sb3", ["rollout/ep_rew_mean", "train/loss", "train/learning_rate", "train/entropy_loss"]),
        ("cleanrl", ["charts/episodic_return", "losses/clipfrac"]),
        ("torchtitan", ["loss", "grad_norm", "tps", "tflops", "mfu"]),
        ("trl", ["loss", "learning_rate", "rewards/x/mean", "completions/mean_length"]),
        ("trl_ppo", ["objective/kl", "objective/scores", "policy/approxkl_avg"]),
        ("trl_ppo", ["ppo/policy/approxkl", "ppo/mean_scores", "env/reward_mean"]),
        ("llamafactory", ["current_steps", "loss", "lr", "percentage"]),
        ("nanochat", ["loss", "lrm", "tok/sec", "dt", "mfu"]),
        ("rsl_rl", ["Value function loss", "Mean total reward"]),
        (None, ["loss", "grad_norm", "reward"]),
        (None, []),
    ],
)
def test_detection(framework: str | None, keys: list[str]) -> None:
    assert naming.detect_framework(keys) == framework
    assert naming.detect_framework(reversed(keys)) == framework


@pytest.mark.parametrize(
    ("framework", "key", "name"),
    [
        ("verl", "actor/ppo_kl", "approx_kl"),
        ("verl", "critic/kl", "kl_mean"),
        ("verl", "rollout_corr/k3_kl", "mismatch_kl"),
        ("verl", "response_length/clip_ratio", "truncation_rate"),
        ("verl", "actor/pg_clipfrac", "clip_fraction"),
        ("verl", "timing_s/gen", "time/gen"),
        ("openrlhf", "kl", "kl_mean"),
        ("openrlhf", "ppo_kl", "approx_kl"),
        ("openrlhf", "train/ppo_clip_ratio", "clip_fraction"),
        ("openrlhf", "response_clip_ratio", "truncation_rate"),
        ("slime", "rollout/rewards", "shaped_reward_mean"),
        ("slime", "rollout/zero_std/count_1", None),
        ("open_instruct", "loss/kl_avg", None),
        ("open_instruct", "objective/kl2_avg", "kl_mean"),
        ("trl_ppo", "objective/kl", None),
        ("prime_rl", "train/agg/all/main/reward/mean", "reward_mean"),
        ("prime_rl", "train/agg/all/main/rewards/format/mean", "reward_component/format"),
        ("trl", "mean_reward", "reward_mean"),
        ("trl", "rewards/margins", "preference_margin"),
        ("verl", "mean_reward", None),
        ("generic", "Training Loss", "loss"),
        ("generic", "Grad Norm", "grad_norm"),
        ("generic", "val_reward", "eval/reward_mean"),
        ("generic", "something else", None),
    ],
)
def test_keys(framework: str, key: str, name: str | None) -> None:
    assert naming.every()[framework].canonical(key) == name


@pytest.mark.parametrize(
    ("framework", "key", "logged", "metric"),
    [
        ("sb3", "train/entropy_loss", -0.5, 0.5),
        ("areal", "ppo_actor/update/approx_kl/avg", 0.25, -0.25),
        ("areal", "ppo_actor/update/update_successful", 1.0, 0.0),
        ("nemo_rl", "train/baseline_reward/pct_mixed", 25.0, 0.75),
        ("open_instruct", "val/stop_rate", 0.75, 0.25),
        ("tinker", "env/all/by_group/frac_mixed", 0.25, 0.75),
        ("openrlhf", "dynamic_filtering_pass_rate", 0.25, 0.75),
        ("prime_rl", "perf/mfu", 31.25, 0.3125),
        ("megatron", "elapsed time per iteration (ms)", 1500.0, 1.5),
    ],
)
def test_values_are_recomputed(framework: str, key: str, logged: float, metric: float) -> None:
    ((value, there),) = naming.every()[framework].apply({key: (logged, True)}).values()
    assert there
    assert value == pytest.approx(metric)


def test_transforms_sentinels_and_witnesses_belong_to_known_keys() -> None:
    for table in naming.every().values():
        for key in {*table.transforms, *table.witnesses}:
            assert table.canonical(key), f"{table.framework}: {key}"
        for key in table.detect:
            assert not (key.endswith("*") and len(key) < 4), f"{table.framework}: {key}"
