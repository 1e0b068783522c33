"""What a console log tells when no line of it is a row of metrics by itself.

Blocks of `name: number` under a heading with its step (RSL-RL, NeMo-RL, hand-written trainers),
printed lists of rewards, and the complaints of trackers about steps that went back.
"""

from __future__ import annotations

import re

from rlprobe.importers.console import line as console_line
from rlprobe.importers.console.pairs import plain_pairs
from rlprobe.importers.numbers import spelled

Row = dict[str, float]

_HEADING = re.compile(
    r"(?:^|\W)(?:learning iteration|iteration|step)\s{0,9}[ =:]\s{0,9}(\d+)\s{0,9}/\s{0,9}\d+"
    r"(?:,\s?epoch=\d+)?(?: done)?\W*$",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"\W*(?:\d\d:\d\d:\d\d\W+)?(?P<key>[A-Za-z][\w ()./-]{1,48}?)\s{0,20}:\s{0,20}=?\s{0,20}"
    r"(?P<value>[-+]?[\d.,]+(?:[eE][-+]?\d+)?|nan|[-+]?inf)\s{0,9}[a-z%]{0,8}\s*",
    re.IGNORECASE,
)
_ASIDE = re.compile(r"\s*\([^()]{0,60}\)")
_REWARDS = re.compile(
    r"\brewards?\s{0,9}[:=]\s{0,9}(?:tensor\()?\[([^\[\]]{1,4000})\]", re.IGNORECASE
)
_WENT_BACK = re.compile(
    r"\b[Ss]tep (?P<a>\d{1,15}) (?:<|is less than the current step) (?P<b>\d{1,15})\b"
)
_LONGEST_LINE = 160
_MOST_WORDS = 3


class Blocks:
    """Collects blocks, lists and complaints; used only where there is nothing better.

    Args:
        most: of each kind that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._step: int | None = None
        self._block: dict[str, list[float]] = {}
        self._blocks: list[tuple[int, Row]] = []
        self._lists: list[Row] = []
        self._backs: list[int] = []
        self._coarse: list[tuple[int, Row]] = []

    def feed(self, text: str) -> None:
        """A line that is no row."""
        if "ewards" in text or "reward" in text:
            self._list(text)
        if "tep " in text and len(self._backs) < self._most and (match := _WENT_BACK.search(text)):
            self._backs += [int(match["b"]), int(match["a"])]
        if len(text) > _LONGEST_LINE:
            return
        match = _HEADING.search(text) if "/" in text else None
        if match:
            self._close(int(match[1]))
        elif "│" in text:
            self._grid(text)
        elif ":" in text or "=" in text:
            self._label(text)

    def coarse(self, step: int, row: Row) -> None:
        """A row whose step counts epochs or episodes."""
        if len(self._coarse) < self._most:
            self._coarse.append((step, row))

    def _grid(self, text: str) -> None:
        """A line of a printed grid: name, number, name, number (AReaL)."""
        cells = [cell.strip() for cell in text.strip().strip("│").split("│")]
        for key, cell in zip(cells[::2], cells[1::2], strict=False):
            value = spelled(cell)
            if value is not None and console_line.is_measurement(key):
                self._add(key, value)

    def _label(self, text: str) -> None:
        label = _LABEL.fullmatch(text)
        if label:
            name = console_line.labelled(_ASIDE.sub("", label["key"]).strip())
            value = spelled(label["value"])
            if name and value is not None:
                self._add(name, value)
            return
        pairs, rest = plain_pairs(text)
        if len(pairs) == 1 and len(re.findall(r"[A-Za-z]{2,}", rest)) <= _MOST_WORDS:
            name = console_line.labelled(pairs[0][0])
            if name:
                self._add(name, pairs[0][1])

    def _add(self, name: str, value: float) -> None:
        values = self._block.setdefault(name, [])
        if len(values) < self._most:
            values.append(value)

    def _close(self, step: int) -> None:
        """A heading: what came before it belongs to the step before."""
        from statistics import fmean

        before = self._step if self._step is not None else step - 1
        if self._block and before >= 0 and len(self._blocks) < self._most:
            # What is printed once is of the step; what comes again and again is of its samples.
            row = {name: fmean(values) for name, values in self._block.items()}
            if self._blocks and self._blocks[-1][0] == before:
                self._blocks[-1][1].update(row)
            else:
                self._blocks.append((before, row))
        self._step, self._block = step, {}

    def _list(self, text: str) -> None:
        from statistics import fmean, pstdev

        match = _REWARDS.search(text)
        if not match or len(self._lists) >= self._most:
            return
        numbers = [spelled(word) for word in match[1].split(",")]
        rewards = [number for number in numbers if number is not None]
        if len(rewards) > 1 and len(rewards) == len(numbers):
            self._lists.append(
                {
                    "reward_mean": fmean(rewards),
                    "reward_std": pstdev(rewards),
                    "reward_min": min(rewards),
                    "reward_max": max(rewards),
                    "zero_variance_group_fraction": float(len(set(rewards)) == 1),
                }
            )

    def rows(self) -> tuple[list[tuple[int, Row]], str]:
        """Rows with their steps, and what they are, in words."""
        if self._step is not None:
            self._close(self._step)
        if self._coarse:
            return self._coarse, "the steps are those of a larger counter (epoch, episode, …)"
        if self._blocks:
            return self._blocks, "read from blocks of names and numbers under a step"
        if self._lists:
            return list(enumerate(self._lists, start=1)), (
                "read from printed lists of rewards, each taken as one group: numbered by row"
            )
        backs = [step for i, step in enumerate(self._backs) if i == 0 or step != self._backs[i - 1]]
        return [(step, {}) for step in backs], (
            "no metrics: only a tracker's complaints about steps that went back"
        )
