"""Where a fall began."""

from __future__ import annotations

import numpy as np

from rlprobe.rule import descent_onset


def test_a_fall_begins_below_the_level_it_came_from_and_not_at_an_older_one() -> None:
    noise = np.random.default_rng(0).normal(0, 0.02, 300)
    fall = np.concatenate((np.full(100, 2.0), np.full(100, 1.0), np.linspace(1, -1, 100))) + noise
    assert 198 <= descent_onset(fall, 280) <= 225
    step = np.concatenate((np.full(150, 2.0), np.full(150, -1.0))) + noise
    assert descent_onset(step, 157) == 150
    assert descent_onset(fall[:1], 0) == 0
