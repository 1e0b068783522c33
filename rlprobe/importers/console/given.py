"""Rows as they are given: what is said twice, what belongs to the step of the row before it."""

from __future__ import annotations

from collections.abc import Iterable

from rlprobe.importers.console import line as console_line
from rlprobe.importers.console.account import Account
from rlprobe.importers.console.alike import repeats, says_more
from rlprobe.importers.console.asides import Asides
from rlprobe.importers.console.blocks import Blocks, Group
from rlprobe.importers.console.episodes import Episodes
from rlprobe.importers.console.held import Held, beside
from rlprobe.importers.console.rank_rows import RankRows
from rlprobe.importers.console.steps import Bar, ConsoleRow, ConsoleRows, Row
from rlprobe.importers.steps import LARGEST

_EVALUATION = ("eval_", "eval/", "test_", "val/", "val-", "validation/")


def of_evaluation(names: Iterable[str]) -> bool:
    """Whether a row of these names is of an evaluation."""
    return all(name.startswith(_EVALUATION) or name == "epoch" for name in names)


class Given:
    """Takes rows and blocks, and gives each row as soon as it is known to be whole.

    Args:
        most: rows that are held back at most, for the case that there are no better ones.
        step_key: the counter to take for the step, where there are several.

    Attributes:
        account: which lines of metrics were understood.
    """

    def __init__(self, most: int, step_key: str | None) -> None:
        self.account = Account()
        self.ready: list[ConsoleRow] = []
        self.count = 0  # rows given so far
        self.steps = 0  # of these, how many had another step than the one before
        self.latest: int | None = None  # the step of the last one
        self.bar: Bar | None = None
        self.bar_here = False  # whether it stands in this line
        self.rank: int | None = None
        self.ranks = RankRows()
        self.episodes = Episodes()
        self.context: int | None = None
        self.waiting: ConsoleRow | None = None
        self.last: Row = {}
        self.asides = Asides(most)
        self.measured = 0  # rows that are no evaluation
        self.unstepped = False  # whether some row told no step
        self.names: set[str] = set()  # of the rows that told their step
        self.tags: set[str] = set()  # of scalars that told theirs
        self.number = 0  # of the line that is read
        self.blocks = Blocks(step_key)
        self.held = Held(most, self.account)

    def notes(self) -> list[str]:
        """What was done with what was read, and what was left out, in words."""
        told = (self.account, self.ranks, self.episodes, self.asides, self.held.regular)
        return [note for part in told for note in part.notes()]

    def given(self) -> list[ConsoleRow]:
        """The rows that are whole and were not given yet."""
        if not self.ready:
            return []
        ready, self.ready = self.ready, []
        return ready

    def _give(self, row: ConsoleRow) -> None:
        if row.step is not None and not -1 < row.step < LARGEST:  # a torn number: no step is one
            self.account.miss(self.number, f"step {row.step}: {', '.join(row.metrics)}")
            return
        self.ready.append(row)
        self.count += 1
        self.account.read += 1
        if not row.beside:
            self.steps += row.step != self.latest
            self.latest = row.step

    def _drawn(self, bar: Bar | None) -> None:
        """A bar that is drawn again after a row tells where the row was printed."""
        row = self.waiting
        if bar is not None and row is not None and row.bar_at is None:
            row.bar_at = bar if row.bar is None or row.bar.of == bar.of else None

    def _row(self, row: Row) -> None:
        if "step" in row:
            step, counted = console_line.step_of(row), row["step"]
            row = {key: value for key, value in row.items() if key != "step"}
            if step is not None and row:
                self._explicit(step, row)
            elif row and not counted < 0:  # more than any training counts
                self.account.miss(self.number, f"step {counted:g}: {', '.join(row)}")
        elif "train_runtime" not in row:
            self._implicit(row)

    @property
    def steady(self) -> bool:
        """Whether rows of a line each can be given as they are: nothing is to be put in them."""
        pending = self.context is not None or self.asides or self.asides.overflowed
        return not (pending or self.episodes.waiting or self.blocks.holds or self.ready)

    def give_rows(self, rows: ConsoleRows) -> None:
        """Take note of rows that were given as they are."""
        last = rows.row(-1)
        self.last = last.metrics
        self.names.update(self.last if rows.steps is not None else ())
        self.blocks.row_given(last.step)
        self.measured += len(rows)
        self.count += rows.size
        self.account.read += rows.size
        self.steps += len(rows) if rows.steps is not None else self.latest is not None
        self.latest = last.step
        self.unstepped |= rows.steps is None
        self.bar = rows.bars[-1]

    def _explicit(self, step: int, row: Row) -> None:
        if self.rank is None and self.episodes.add(step, row):
            return
        self._flush()
        if self.rank is None and self.episodes.add(step, row):
            return
        if self.rank is not None and self.ranks.add(step, self.rank, row):
            return  # another rank has printed this step
        if self.latest == step and repeats(self.last, row):
            self.account.repeats += 1
            return
        self._stepped(step, row)

    def _stepped(self, step: int, row: Row) -> None:
        self.last = row
        self.names.update(row)
        self._before_row(step)
        self._give(ConsoleRow(step, {**self._warned(row), **row}))
        self.context = None

    def _before_row(self, step: int | None) -> None:
        """What waits for a row to end the block before it is whole."""
        self.blocks.row_given(step)
        self._settle()

    def _warned(self, row: Row) -> Row:
        self.measured += 1
        return self.asides.take(row)

    def _implicit(self, row: Row) -> None:
        if self.context is not None:
            self._explicit(self.context, row)
            return
        if of_evaluation(row):
            self._flush()
            self._give(ConsoleRow(None, row, beside=True))
            return
        at = self.bar if self.bar_here else None
        if self.waiting is not None:
            if says_more(self.waiting.metrics, row):
                self.account.repeats += 1
                at = at or self.waiting.bar_at
                row = {**self.waiting.metrics, **row}
            else:
                self._flush()
        self.waiting = ConsoleRow(None, row, bar=self.bar, bar_at=at)

    def _end_episodes(self) -> None:
        """The step of the last episodes is whole."""
        whole = self.episodes.take()
        if whole is not None:
            self._stepped(*whole)

    def _flush(self) -> None:
        self._end_episodes()
        if self.waiting is None:
            return
        row, self.waiting = self.waiting, None
        if row.metrics == self.last and len(row.metrics) > 3:
            self.account.repeats += 1
            return
        self.last = row.metrics
        self.unstepped = True
        self._before_row(None)
        row.metrics = {**self._warned(row.metrics), **row.metrics}
        self._give(row)

    def _settle(self) -> None:
        """Give the blocks that are whole a step, or keep them in case there is nothing better."""
        if not self.blocks.ready:
            return
        ready, self.blocks.ready = self.blocks.ready, []
        for group in ready:
            if group.where == "own" and group.step is not None:
                self.waiting, waiting = None, self.waiting
                self._block_row(group.step, group.metrics)
                self.waiting = waiting
            else:
                self._without_own_step(group)

    def _without_own_step(self, group: Group) -> None:
        if not self.tags.isdisjoint((*group.metrics, *group.others)):
            line = group.lines[0] if group.lines else (self.number, ", ".join(group.others))
            self.account.miss(*line, count=max(group.count, 1))  # scalars that lack their step
            return
        at = self.latest if group.where == "after" else group.step
        if group.samples[0]:
            count, number, text = group.samples
            self.account.sampled(number, text, count)
        self.held.regular.add(at, group.others, group.repeated)
        if not console_line.measures(group.metrics):
            self.held.regular.add(at, group.metrics, group.repeated)
        elif group.where == "after" or (group.where == "coarse" and self.measured):
            row = beside(group, self.last, self.account)
            if row and (self.count or self.waiting):
                self._give(ConsoleRow(None, row, beside=True))
        else:
            self.held.keep(group)

    def _block_row(self, step: int, row: Row) -> None:
        if self.latest == step and repeats(self.last, row):
            self.account.repeats += 1
            return
        self.last = row
        self.names.update(row)
        self._give(ConsoleRow(step, {**self._warned(row), **row}))
