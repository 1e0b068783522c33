"""Blocks that are held back: rows only as far as the output has no better ones."""

from __future__ import annotations

from rlprobe.importers.console import line as console_line
from rlprobe.importers.console.account import Account
from rlprobe.importers.console.blocks import Group
from rlprobe.importers.console.lists import Lists
from rlprobe.importers.console.regular import Regular

Row = dict[str, float]
_FEWEST = 3  # steps at which an unknown name must come


class Held:
    """Keeps blocks until the output ends.

    Args:
        most: blocks of each kind that are kept.
        account: told of the lines that they are made of.

    Attributes:
        regular: numbers under unknown names.
        lists: printed lists of rewards.
    """

    def __init__(self, most: int, account: Account) -> None:
        self.regular = Regular(most)
        self.lists = Lists(most)
        self._most = most
        self._account = account
        self._groups: dict[str, list[Group]] = {"heading": [], "coarse": [], "nowhere": []}

    def keep(self, group: Group) -> None:
        """A block for the case that nothing better comes."""
        groups = self._groups[group.where]
        if group.metrics and len(groups) < self._most:
            groups.append(group)
        else:
            self._miss(group)

    def of(self, where: str) -> list[Group]:
        """Those of one kind."""
        return self._groups[where]

    def late(self, names: set[str]) -> list[tuple[int | None, Row]]:
        """Blocks under headings, where other rows tell their steps: what is new in them."""
        rows = []
        for group in self._groups["heading"]:
            row = beside(group, dict.fromkeys(names, 0.0), self._account)
            if row:
                rows.append((group.step, row))
        return rows

    def give_up(self, *kinds: str) -> None:
        """Blocks of these kinds are used for nothing."""
        for kind in kinds:
            for group in self._groups[kind]:
                self._miss(group)

    def _miss(self, group: Group) -> None:
        if group.lines:
            self._account.miss(*group.lines[0], count=group.count)

    def rows(self) -> tuple[list[tuple[int, Row]], str]:
        """All there is, where no line was a row by itself, and what it is, in words."""
        for where, note in (
            ("heading", "read from blocks of names and numbers under a step"),
            ("coarse", "the steps are those of a larger counter (epoch, episode, …)"),
        ):
            if groups := self._groups[where]:
                self._account.read += sum(group.count for group in groups)
                self.give_up(*({"coarse", "nowhere"} - {where}))
                fewest = min(_FEWEST, len(groups))
                return _merged(groups, self.regular.rows(len(groups), fewest)), note
        if groups := self._groups["nowhere"]:
            self._account.read += sum(group.count for group in groups)
            numbered = list(enumerate((group.metrics for group in groups), start=1))
            return numbered, "steps not logged: numbered by row"
        rows, note = self.lists.rows()
        return (rows, note) if rows else (self.regular.rows(0), "no name in it is known")


def _merged(groups: list[Group], regular: list[tuple[int, Row]]) -> list[tuple[int, Row]]:
    """Blocks of the same step, one after another, as one row, with what comes at every step."""
    others = dict(regular)
    rows: list[tuple[int, Row]] = []
    for group in groups:
        step = group.step or 0
        if not rows or rows[-1][0] != step:
            rows.append((step, dict(others.pop(step, {}))))
        rows[-1][1].update(group.metrics)
    return rows


def beside(group: Group, last: Row, account: Account) -> Row:
    """What a block adds to the row before it; what comes several times is of single samples."""
    row = {
        key: value
        for key, value in group.metrics.items()
        if key not in group.repeated and key not in last
    }
    samples = [key for key in group.repeated if console_line.is_measurement(key)]
    if samples and group.lines:
        account.sampled(*group.lines[0], count=group.count)
    else:
        account.read += group.count
    return row
