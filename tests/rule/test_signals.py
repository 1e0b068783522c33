"""A metric, what stands beside it, and what it was like before each row."""

from __future__ import annotations

import math

import numpy as np

from rlprobe.rule import Signal, is_signed
from rlprobe.scan.context import Context
from rlprobe.testing import run_of

NAN = math.nan


def signal_of(metric: str, **columns: list[float | str]) -> Signal:
    signal = Signal.logged(Context(run_of({"name": "run", "columns": columns})), metric)
    assert signal is not None
    return signal


def test_another_metric_alongside_has_the_rows_of_the_signal() -> None:
    reward = signal_of("reward_mean", reward_mean=[1, NAN, 3, 4], entropy=[0.1, 0.2, "-", 0.4])
    entropy = reward.alongside("entropy")
    assert entropy.metric == "entropy"
    assert entropy.steps.tolist() == [1, 3, 4]
    np.testing.assert_array_equal(entropy.values, [0.1, NAN, 0.4])


def test_rows_within_the_scatter_of_a_known_past() -> None:
    past = signal_of("loss", loss=[1, 2, 3, 2.5, 9]).past(warmup=3)
    assert past.robust_std[3] > 0
    assert past.within(2).tolist() == [False, False, False, True, False]


def test_rows_left_out_never_become_the_best_level() -> None:
    reward = signal_of("reward_mean", reward_mean=[1, 1, 9, 9, 9, 9, 1])
    without = reward.values > 5
    assert reward.best_level(4).level[-1] == 9
    assert reward.best_level(4, without=without).level[-1] == 1


def test_distance_from_the_best_level_has_a_least_standard_deviation() -> None:
    best = signal_of("reward_mean", reward_mean=[10, 10, 10, 12]).best_level(4)
    assert best.robust_std[-1] == 0
    assert best.z(least_share=0.1)[-1] == 2


def test_a_loss_is_signed_by_its_values_or_by_what_is_learnt_from() -> None:
    assert not is_signed(signal_of("loss", loss=[2.0, 0.0]))
    assert is_signed(signal_of("loss", loss=[2.0, -0.1]))
    assert is_signed(signal_of("loss", loss=[2.0, 1.0], reward_mean=[0.5, 0.5]))
