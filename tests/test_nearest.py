"""Names that no check knows: the nearest that is known, and which are worth a look first."""

from __future__ import annotations

import pytest

from rlprobe import nearest, schema


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("actor/entropy_loss2", "entropy_loss"),
        ("train_loss_epoch", "loss"),
        ("PolicyLoss", "policy_loss"),
        ("MeanReward", "reward_mean"),
        ("best_episode_reward_max", "reward_max"),
        ("rewards_p95_all", "reward_p95"),
        ("default_policy/learner_stats/vf_explained_var", "explained_variance"),
        ("average_kl_to_reference", "kl_mean"),
        ("gradnorm", "grad_norm"),
        ("kldiv", "kl_mean"),
        ("entrophy", "entropy"),
        ("completion_len", "completion_length_mean"),
        ("grad_norm_layer_3", "grad_norm"),
    ],
)
def test_near_is_what_shares_most_words(name: str, metric: str) -> None:
    assert nearest.nearest(name) == metric
    assert schema.metric(metric)


@pytest.mark.parametrize(
    "name",
    [
        "obs_rms_mean",  # shares the statistic alone
        "critic/values/mean",
        "actor/approx_kl/max",  # of the update, not to the reference
        "total_episodes",  # shares a qualifier alone
        "actor/kl_coef",  # a setting
        "num_tokens_dropped",  # a count
        "rewards/chosen",  # one half of a pair
        "accuracy",  # of tokens or of pairs: none is nearer
        "my/odd metric",
        "",
        "7",
        "\udcff/\x1b",
    ],
)
def test_far_names_have_none(name: str) -> None:
    assert nearest.nearest(name) is None


def test_a_framework_adds_its_own_names() -> None:
    assert nearest.nearest("actor/pg_clipfrac_upper", "verl") == "clip_fraction"
    assert nearest.nearest("actor/entropy_loss2", "no such framework") == "entropy_loss"


def test_clocks_and_counters_come_last() -> None:
    names = ["throughput", "odd", "reward_time", "layer.1.loss", "layer.0.loss", "kl_coef", "score"]
    assert nearest.telling_first(names) == [
        "layer.0.loss",
        "score",
        "layer.1.loss",
        "odd",
        "reward_time",
        "kl_coef",
        "throughput",
    ]


def test_of_names_that_differ_in_numbers_one_stands_for_all() -> None:
    names = [*(f"layers.{number}.grad" for number in range(50)), "my_reward"]
    assert nearest.telling_first(names)[:2] == ["layers.0.grad", "my_reward"]
    assert len(nearest.telling_first(names)) == 51


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("  loss 0.5 ", "loss 0.5"),
        ("x" * 60, "x" * 39 + "…"),
        ("loss: 0.5 " + "x" * 60, "loss: 0.5 " + "x" * 29 + "…"),
        (
            "[2024-01-02 03:04:05,678] [INFO] [logging.py] average reward score: 0.43 and more",
            "…[logging.py] average reward score: 0.4…",
        ),
        ("(Worker pid=19443, ip=10.0.0.1)" + " " * 30 + "kl 0.25", "…kl 0.25"),
        ("[2024-01-02 03:04:05,678] [INFO] " + "y" * 90 + "_loss 0.25", "…loss 0.25"),
        ("=" * 50 + "\x1b[2J loss\u202e 0.25", r"…loss\u202e 0.25"),
    ],
)
def test_an_excerpt_shows_what_a_line_tells(text: str, shown: str) -> None:
    assert nearest.excerpt(text, 40) == shown
