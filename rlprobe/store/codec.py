"""What a run is made of <-> the rows of a recording's tables. The only place that knows both.

Recorder and importers write through it, recordings are read through it, and SQL sees a log that
nobody recorded through it. null is not logged, NaN is a value; a text that is not known is null.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from rlprobe import redaction, schema
from rlprobe.numbers import plural
from rlprobe.store import arrow, event_data, layout, limits
from rlprobe.store.frame import Column
from rlprobe.store.text import storable, text_of
from rlprobe.values import Event, FloatArray, IntArray, Rollout

Row = dict[str, Any]  # a row of events or samples, as it is stored
_INT32 = 2**31  # no length is as large

# --- metrics --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def metric_name(table: str, name: str) -> str:
    """The column of a metric: its name, or `user/…` where the table has a key of that name."""
    text = storable(name)
    return f"user/{text}" if text in _fixed(table) else text


def _fixed(table: str) -> set[str]:
    """Columns of a table that are no metrics."""
    return {column.name for column in schema.tables()[table].columns} - {"tokens_seen"}


def metrics(table: str, keys: Mapping[str, Any], columns: Mapping[str, Column]) -> pa.Table:
    """Rows of metrics (`steps` or `ranks`) as they are stored.

    Args:
        keys: one value per row for each key of the table: `step`, `attempt`, `rank`, and `time` in
            seconds since the epoch (NaN: not known).
        columns: values and validity by `metric_name`.
    """
    size = len(keys["step"])
    fields = list(schema.arrow_fields(table))
    names = {field.name for field in fields}
    arrays = []
    for field in fields:
        if field.name in keys:
            arrays.append(_key(field, keys[field.name]))
        elif field.name in columns:
            arrays.append(_doubles(*columns[field.name]))
        else:
            arrays.append(pa.nulls(size, field.type))
    for name in sorted(columns.keys() - names):
        fields.append(pa.field(name, pa.float64()))
        arrays.append(_doubles(*columns[name]))
    return pa.table(arrays, schema=pa.schema(fields))


def _doubles(values: FloatArray, valid: Any) -> pa.Array:
    return arrow.from_numpy(values.astype(np.float64, copy=False), pa.float64(), valid)


def _key(field: pa.Field, values: Any) -> pa.Array:
    if field.name == "time":
        return arrow.from_numpy(_micros(values), field.type)
    return arrow.from_numpy(np.asarray(values).astype(f"i{field.type.bit_width // 8}"), field.type)


# --- events and rollouts --------------------------------------------------------------------------


def rows(table: str, content: Iterable[Row]) -> pa.Table:
    """Rows of `events`, `samples` or `workers` as they are stored."""
    return arrow.table_of(list(content), schema.arrow_fields(table))


def event_row(event: Event) -> Row:
    """An event as a row, without secrets; data that JSON has no word for becomes text."""
    data = redaction.settings(dict(event.data))
    return {
        "time": int(_micros(event.time)),
        "step": None if event.step is None else int(event.step),
        "attempt": event.attempt,
        "rank": event.rank,
        "kind": storable(event.kind),
        "message": storable(redaction.text(event.message)),
        "data": storable(json.dumps(data, default=lambda value: redaction.text(text_of(value)))),
    }


def events(stored: pa.Table, remark: Callable[[str], None] | None = None) -> list[Event]:
    """Stored events, in the order of the rows.

    Args:
        remark: told how many of them lack some of their data, where some do.
    """
    pairs = [_event(row) for row in _dicts(stored)]
    lacking = sum(not whole for _, whole in pairs)
    if lacking and remark is not None:
        remark(f"data of {plural(lacking, 'event')} left out, whole or in part: not what it can be")
    return [event for event, _ in pairs]


def _event(row: Row) -> tuple[Event, bool]:
    data, whole = event_data.decoded(row["kind"], row["data"])
    message = row["message"] or ""
    event = Event(
        kind=row["kind"],
        step=row["step"],
        time=float(_seconds(np.array(row["time"]))),
        attempt=row["attempt"],
        rank=row["rank"],
        message=message[: limits.MOST_DATA],
        data=data,
    )
    return event, whole and len(message) <= limits.MOST_DATA


def worker_row(
    step: int, when: float, attempt: int, worker: tuple[str, str], numbers: Mapping[str, float]
) -> Row:
    """A report of a process that is no rank as a row.

    Args:
        when: seconds since the epoch.
        worker: its role, and which one it is.
    """
    return {
        "step": step,
        "attempt": attempt,
        "time": int(_micros(when)),
        "role": storable(worker[0]),
        "worker": storable(worker[1]),
        "metrics": [(storable(name), value) for name, value in numbers.items()],
    }


def rollout_row(rollout: Rollout) -> Row:
    """A rollout as a row; a length that no column holds counts as not recorded."""
    length = rollout.completion_length
    return {
        "step": rollout.step,
        "attempt": rollout.attempt,
        "rank": rollout.rank,
        "group_id": storable(rollout.group_id),
        "sample_id": storable(rollout.sample_id),
        "prompt_id": _text(rollout.prompt_id or None),
        "prompt": _text(rollout.prompt),
        "completion": _text(rollout.completion),
        "reward": rollout.reward,
        "reward_components": [(storable(k), v) for k, v in rollout.reward_components.items()],
        "advantage": rollout.advantage,
        "completion_length": length if length is not None and abs(length) < _INT32 else None,
        "truncated": rollout.truncated,
        "logprob_mean": rollout.logprob_mean,
        "kl": rollout.kl,
        "capture_reason": _text(rollout.capture_reason or None),
    }


def _text(text: str | None) -> str | None:
    return None if text is None else storable(text)


def rollouts(stored: pa.Table) -> list[Rollout]:
    """Stored rollouts, in the order of the rows."""
    return [_rollout(row) for row in _dicts(stored)]


def _rollout(row: Row) -> Rollout:
    return Rollout(
        **{
            **row,
            "prompt_id": row["prompt_id"] or "",
            "reward_components": {
                name: value for name, value in row["reward_components"] or () if value is not None
            },
            "capture_reason": row["capture_reason"] or "",
        }
    )


def _dicts(stored: pa.Table) -> list[Row]:
    """Rows, with `time` in microseconds."""
    names = stored.schema.names
    values = [arrow.python_values(column) for column in stored.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


# --- time -----------------------------------------------------------------------------------------


def _micros(seconds: Any) -> IntArray:
    """Microseconds since the epoch; `NO_TIME` for a time that is not known."""
    micros = np.rint(np.asarray(seconds, dtype=np.float64) * 1e6)
    return np.where(np.abs(micros) < 2.0**63, micros, layout.NO_TIME).astype(np.int64)


def _seconds(micros: IntArray) -> FloatArray:
    """Seconds since the epoch; NaN for the epoch itself, which stands for a time not known."""
    return np.where(micros == layout.NO_TIME, np.nan, micros / 1e6)
