"""Which key of a row is its step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlprobe import schema
from rlprobe.counters import counts, is_counter, normal, rank
from rlprobe.errors import InputError
from rlprobe.importers.numbers import number

STEP_KEYS = schema.step_keys().keys
# Keys that count something, but measure nothing: two rows that share only these share no metric.
COUNTERS = schema.step_keys().counters

LARGEST = 2**53  # steps are below: floats count no further one by one
_MOST_NAMED = 12


def best_step_key(keys: Iterable[str], wanted: str | None = None) -> str | None:
    """The key that counts the steps of the optimizer best; None if no key counts steps.

    Case, spaces and punctuation make no difference: `global iter` comes before `inner iter`,
    `counters/updates` before `counters/examples`, `training_iteration` before `timesteps_total`.

    Args:
        keys: names of one row or table.
        wanted: the one that the user asked for; None comes back if there is none of that name.
    """
    names = list(keys)
    if wanted is not None:
        plain = normal(wanted)
        alike = [name for name in names if normal(name) == plain]
        below = [name for name in names if normal(name.rpartition("/")[2]) == plain]
        return next(iter([wanted] if wanted in names else [*alike, *below]), None)
    return next(iter(ranked(names)), None)


def ranked(keys: Iterable[str]) -> list[str]:
    """The keys among these that count steps, the best one first."""
    known = [(place, name) for name in keys if (place := rank(name)) is not None]
    return [name for _, name in sorted(known, key=lambda item: item[0])]


def is_step(key: str) -> bool:
    """Whether a name counts updates or rounds of training, and not what these are made of."""
    place = rank(key)
    return place is not None and place[0] <= schema.step_keys().ranking["_step"]


class NoSuchCounterError(InputError):
    """Rows have no counter of the name that the user asked for."""

    def __init__(self, path: object, wanted: str, keys: Iterable[str]) -> None:
        counters = sorted({key for key in keys if counts(key)})
        known = ", ".join(f"'{name}'" for name in counters[:_MOST_NAMED])
        super().__init__(
            f"Couldn't number the rows of '{path}' by '{wanted}': there is no such counter",
            hint=f"Counters there: {known}." if known else "No counter was found there.",
        )


def step_number(value: object) -> int | None:
    """A step: a whole number, also as text, or the first part of `12/500`."""
    if isinstance(value, str) and "/" in value:
        value = value.partition("/")[0]
    counted = number(value)
    if counted is None or not counted.is_integer() or abs(counted) >= 2**62:
        return None
    return int(counted)


def step_of(row: Mapping[str, Any], keys: Iterable[str] = STEP_KEYS) -> int | None:
    """The step of a row, under the usual keys; None if it has none."""
    for key in keys:
        if key in row and (step := step_number(row[key])) is not None:
            return step
    return None


def choose(
    rows: Sequence[Mapping[str, Any]], keys: Iterable[str] | None = None, *, table: bool = False
) -> str | None:
    """The key that tells the step of most of these rows; None if they have none.

    A counter that stands still while another one counts is no step.

    Args:
        rows: some rows of a file.
        keys: where to look, the better first; those that rows have, if not given.
        table: whether rows are those of a table: one without a step is a bad row.
    """
    if keys is None:
        keys = ranked(dict.fromkeys(key for row in rows for key in row))
    still: str | None = None
    for key in keys:
        numbers = [(row, step) for row in rows if (step := step_number(row.get(key))) is not None]
        if not numbers or len(numbers) * 2 < len(rows):
            continue
        if not table and _others_are_alike(rows, key, numbers[0][0]):
            return still
        if len(numbers) == 1 or any(step != numbers[0][1] for _, step in numbers):
            return key
        still = still or key
    return still


def asked_or_best(
    rows: Sequence[Mapping[str, Any]], wanted: str | None, *, table: bool = False
) -> str | None:
    """The counter that the user asked for, if it tells the step of most rows, else the best one."""
    if wanted is not None:
        key = best_step_key(dict.fromkeys(key for row in rows for key in row), wanted)
        if key is not None and choose(rows, [key], table=True):
            return key
    return choose(rows, table=table)


def miscounts(value: object) -> bool:
    """Whether a value stands where a step does and can be none: NaN, or more than is counted."""
    counted = number(value)
    return counted is not None and not abs(counted) < LARGEST


def _others_are_alike(
    rows: Sequence[Mapping[str, Any]], key: str, example: Mapping[str, Any]
) -> bool:
    """Whether many rows without the step measure what those with it do: then it tells little.

    A row whose step is NaN, or more than can be counted, is a bad row and not one without a step.
    """
    measured = {name for name in example if not is_counter(name)}
    others = [
        row for row in rows if step_number(row.get(key)) is None and not miscounts(row.get(key))
    ]
    alike = sum(len(measured & set(row)) * 2 > len(measured) for row in others)
    return alike * 5 > len(rows)
