"""The public names: what is listed can be imported, and nothing is listed twice."""

from __future__ import annotations

import pytest

import rlprobe


def test_all_is_sorted_importable_and_small() -> None:
    assert list(rlprobe.__all__) == sorted(rlprobe.__all__)
    assert len(rlprobe.__all__) <= 12
    for name in rlprobe.__all__:
        assert getattr(rlprobe, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Recorderr'"):
        _ = rlprobe.Recorderr
