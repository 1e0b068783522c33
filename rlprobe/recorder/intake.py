"""What the training thread pushed, as rows that a table can take. Runs on the writer's thread.

A row of which something is odd loses that and no more; a row that has no place (its step is none)
is left out and counted.
"""

from __future__ import annotations

import operator
import os
import socket
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rlprobe.recorder.backlog import Backlog
from rlprobe.recorder.buffer import Row, size_of_row
from rlprobe.recorder.clock import Clock
from rlprobe.recorder.health import Health
from rlprobe.recorder.rollouts import RolloutSelector, SamplePolicy, size_of_rollout
from rlprobe.store import layout
from rlprobe.store.faults import is_of_value
from rlprobe.store.text import plain_data, text_of
from rlprobe.values import Event, Rollout


def whole_step(step: Any) -> int:
    """A step of any type as an integer that a column holds.

    Raises:
        ValueError, TypeError, OverflowError: it is none.
    """
    number: int = step if type(step) is int else _as_int(step)
    if not -layout.MOST_STEP < number < layout.MOST_STEP:
        raise ValueError("too large")
    return number


def _as_int(step: Any) -> int:
    try:
        return operator.index(step)
    except TypeError:
        number = float(step)
    if not number.is_integer():
        raise ValueError("no whole number")
    return int(number)


class Intake:
    """Turns what was pushed into rows of the backlog.

    Attributes:
        last_step: the highest step so far.
    """

    def __init__(
        self,
        backlog: Backlog,
        health: Health,
        policy: SamplePolicy,
        *,
        attempt: int,
        rank: int,
        role: str,
    ) -> None:
        self.attempt = attempt
        self._role = role
        self.rank = rank
        self.last_step: int | None = None
        self.rollouts = RolloutSelector(policy, self._odd, self._not_redacted)
        self._backlog = backlog
        self._health = health
        self._clock = Clock()

    def take(self, rows: Iterable[Row]) -> None:
        """Take rows in, each for itself."""
        self._clock.look()
        for row in rows:
            try:
                self._take_row(row)
            except BaseException as error:  # a value's own code may raise anything
                if not is_of_value(error):
                    raise
                self._health.count(f"dropped_{row[0]}_rows")
                self._health.fail(f"record {row[0]}", error)

    def _take_row(self, row: Row) -> None:
        table, step, moment, content = row if len(row) == 4 else row[:4]
        when = self._clock.time_of(table, moment)
        if table == "events":
            self.add_event(step, when, content)
            return
        try:
            number = whole_step(step)
        except BaseException as error:
            if not is_of_value(error):
                raise
            self._without_step(table, step, content)
            return
        if self.last_step is None or number > self.last_step:
            self.last_step = number
        if table == "samples":
            rollouts = self.rollouts.select(number, self.attempt, self.rank, content)
            self._add_rollouts(rollouts)
            return
        if table == "workers":
            self._add_worker_row(number, when, content)
            return
        self._backlog.add(table, (number, when, content), size_of_row(row))

    def _add_worker_row(self, step: int, when: float, content: dict[str, Any]) -> None:
        from rlprobe.recorder.encode import plain_numbers
        from rlprobe.store import codec

        numbers = plain_numbers(content, self._health.no_number)
        worker = f"{socket.gethostname()}.{os.getpid()}"
        row = codec.worker_row(step, when, self.attempt, (self._role, worker), numbers)
        self._backlog.add("workers", row, 400 + 100 * len(numbers))

    def _without_step(self, table: str, step: Any, content: Any) -> None:
        rows = len(content["completions"]) if table == "samples" else 1
        self._health.count(f"{table}_rows_without_a_step", rows)
        self._health.warn(
            f"step of {table}",
            f"rlprobe: {text_of(step)[:80]!r} is no step; rows of {table} are left out",
        )

    def add_event(self, step: Any, when: float, content: dict[str, Any]) -> None:
        """Take an event in; what is odd about it becomes text, or is left out and counted."""
        from rlprobe.store import codec

        data = content["data"]
        try:
            number = None if step is None else whole_step(step)
        except BaseException as error:
            if not is_of_value(error):
                raise
            number, data = None, {**data, "given_step": text_of(step)[:200]}
            self._odd_event("step")
        event = Event(
            kind=text_of(content["kind"]),
            step=number,
            time=when,
            attempt=self.attempt,
            rank=self.rank,
            message=text_of(content["message"]),
            data=data,
        )
        try:
            row = codec.event_row(event)
        except Exception:  # JSON has no word for it
            self._odd_event("data")
            row = codec.event_row(replace(event, data=plain_data(event.data)))
        self._backlog.add("events", row, 1000 + len(row["message"]) + len(row["data"]))

    def _odd_event(self, what: str) -> None:
        self._health.count(f"event_{what}_kept_as_text")
        self._health.warn(f"event {what}", f"rlprobe: an event's {what} is odd and kept as text")

    def _add_rollouts(self, rollouts: Iterable[Rollout]) -> None:
        from rlprobe.store import codec

        for rollout in rollouts:
            self._backlog.add("samples", codec.rollout_row(rollout), size_of_rollout(rollout))

    def after_fork(self, policy: SamplePolicy) -> None:
        """Begin anew in a forked child."""
        self.rollouts = RolloutSelector(policy, self._odd, self._not_redacted)

    def take_ring(self, trigger: str) -> None:
        """Take the rollouts in that are held for a critical event."""
        self._add_rollouts(self.rollouts.ring(trigger))

    def _not_redacted(self, error: BaseException) -> None:
        self._health.count("texts_not_stored")
        self._health.warn(
            "redact", f"rlprobe: could not redact, text is not stored: {type(error).__name__}"
        )

    def _odd(self, name: str) -> None:
        self._health.count("rollout_values_left_out")
        self._health.warn(
            f"rollouts {name}",
            f"rlprobe: {name} of rollouts: a value cannot be kept, or there are not as many as "
            "completions",
        )
