"""What is left where a log holds no row and no block: printed lists of rewards, and complaints."""

from __future__ import annotations

import re

import numpy as np

from rlprobe.importers.numbers import spelled
from rlprobe.values import FloatArray

Row = dict[str, float]

_REWARDS = re.compile(
    r"\brewards?\s{0,9}[:=]\s{0,9}(?:tensor\()?\[([^\[\]]{1,4000})\]", re.IGNORECASE
)
_WENT_BACK = re.compile(
    r"\b[Ss]tep (?P<a>\d{1,15}) (?:<|is less than the current step) (?P<b>\d{1,15})\b"
)


def _row(rewards: FloatArray) -> Row:
    """What a list of rewards comes to: one NaN makes the mean NaN, as it does in training."""
    with np.errstate(all="ignore"):
        row = {"reward_mean": float(rewards.mean()), "reward_std": float(rewards.std())}
    told = rewards[~np.isnan(rewards)]
    if len(told):
        row |= {"reward_min": float(told.min()), "reward_max": float(told.max())}
    if np.isfinite(rewards).all():
        row["zero_variance_group_fraction"] = float(row["reward_min"] == row["reward_max"])
    return row


class Lists:
    """Collects lists of rewards, and trackers' complaints about steps that went back.

    Args:
        most: of each kind that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lists: list[Row] = []
        self._backs: list[int] = []

    @staticmethod
    def may_hold(text: str) -> bool:
        """Whether a line may be one of those that are collected."""
        return ("reward" in text and _REWARDS.search(text) is not None) or (
            "tep " in text and _WENT_BACK.search(text) is not None
        )

    def feed(self, text: str) -> None:
        """A line that is no row."""
        if "ewards" in text or "reward" in text:
            self._list(text)
        if "tep " in text and len(self._backs) < self._most and (match := _WENT_BACK.search(text)):
            self._backs += [int(match["b"]), int(match["a"])]

    def _list(self, text: str) -> None:
        match = _REWARDS.search(text)
        if not match or len(self._lists) >= self._most:
            return
        numbers = [spelled(word) for word in match[1].split(",")]
        rewards = [number for number in numbers if number is not None]
        if len(rewards) > 1 and len(rewards) == len(numbers):
            self._lists.append(_row(np.array(rewards)))

    def rows(self) -> tuple[list[tuple[int, Row]], str]:
        """Rows with their steps, and what they are, in words."""
        if self._lists:
            return list(enumerate(self._lists, start=1)), (
                "read from printed lists of rewards, each taken as one group: numbered by row"
            )
        backs = [step for i, step in enumerate(self._backs) if i == 0 or step != self._backs[i - 1]]
        return [(step, {}) for step in backs], (
            "no metrics: only a tracker's complaints about steps that went back"
        )
