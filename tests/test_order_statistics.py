"""Medians, quantiles and distinct values are NumPy's, without what NumPy imports for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlprobe import order_statistics
from rlprobe.order_statistics import SortedWindow

FINITE = st.floats(-1e6, 1e6, allow_nan=False) | st.sampled_from([0.0, 0.5, 1.0, 7.0])
VALUES = st.lists(FINITE, min_size=1)


@given(VALUES, st.floats(0, 1))
def test_they_are_those_of_numpy(values: list[float], share: float) -> None:
    array = np.array(values)
    assert order_statistics.median(array) == np.median(array)
    assert order_statistics.quantile(array, share) == pytest.approx(np.quantile(array, share))
    np.testing.assert_array_equal(order_statistics.distinct(array), np.unique(array))
    rows = np.array([values, values[::-1]])
    np.testing.assert_array_equal(order_statistics.row_medians(rows), np.median(rows, axis=1))


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 7.0]) | FINITE, min_size=1), st.integers(1, 9))
def test_a_window_has_the_median_and_deviation_of_its_last_values(
    values: list[float], size: int
) -> None:
    window = SortedWindow(size)
    for value in values:
        window.add(value)
    last = np.array(values[-size:])
    assert window.median == np.median(last)
    spread = np.median(np.abs(last - window.median))
    assert window.deviation(window.median) == pytest.approx(spread, rel=1e-9)


def test_a_scan_imports_no_masked_arrays(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    rows = (f'{{"step": {n}, "loss": {2 + n % 3 / 10}, "grad_norm": 1.0}}\n' for n in range(99))
    log.write_text("".join(rows))
    code = f"import sys, rlprobe; rlprobe.diagnose({str(log)!r}); print('numpy.ma' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
