"""Rollouts: completions with what they earned, as trainers log them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlprobe.errors import EmptyRunError
from rlprobe.importers.importer import Importer, Reading
from rlprobe.importers.numbers import number
from rlprobe.importers.source import Source
from rlprobe.importers.steps import step_of
from rlprobe.importers.trainers.rollout_rows import Rollouts, Sampled
from rlprobe.store.text import plain_text
from rlprobe.values import Problem

_PARQUET = b"PAR1"
_PROMPTS = ("prompt", "input", "inputs", "query", "question", "problem")
_COMPLETIONS = ("completion", "output", "response", "generation")
_REWARDS = ("reward", "score", "total_reward")
_GROUPS = ("group_id", "group", "uid")
_LENGTHS = ("completion_length", "response_length", "completion_tokens")
_NO_COMPONENTS = frozenset(
    {*_REWARDS, *_GROUPS, *_LENGTHS, "step", "global_step", "training_step", "_step"}
    | {"advantage", "truncated", "sample", "sample_id", "index", "epoch", "rank", "id", "time"}
)
_REWARD_WORD = re.compile(r"reward|score|acc|correct|format", re.IGNORECASE)
_MOST_PROBLEMS = 20


class Completions(Importer):
    """Rollouts: TRL's `completions_*.parquet`, verl's `<step>.jsonl`, and files of their kind.

    Needed are a completion and a prompt; a reward, the advantage, the group and the length are
    read where they are. TRL writes one column per reward function and no total: the total is their
    sum, as with equal weights; an empty one does not count. Where no group is named, completions of
    one prompt in one step are a group.

    Each step also yields metrics, for runs that have no others: mean, least and best reward, the
    mean spread inside groups, and the share of groups without any (equal up to rounding). Lengths
    are in characters, under a name of their own, unless the file counts tokens. TRL keeps only the
    last generated batch of a logging window, so these may differ from what it logs.

    Source: trl/trainer/grpo_trainer.py (log), verl/trainer/ppo/ray_trainer.py (_dump_generations),
    ms-swift (completions.jsonl).
    """

    name = "rollouts"
    description = "rollouts: TRL completions_*.parquet, verl rollout JSON Lines, or their kind"
    priority = 30
    folder = True
    rollouts = True

    def recognises(self, source: Source) -> bool:
        """Columns or keys that hold a prompt and a completion."""
        if source.head.startswith(_PARQUET):
            return _is_rollouts(_parquet_names(source))
        first = source.head.lstrip().split(b"\n", 1)[0]
        if not first.startswith(b"{"):
            return False
        try:
            row = json.loads(first)
        except (ValueError, RecursionError):
            # One rollout can be longer than what is looked at.
            return all(_any_key(first, names) for names in (_PROMPTS, _COMPLETIONS))
        return (
            isinstance(row, dict)
            and _is_rollouts(row)
            and isinstance(_first(row, _COMPLETIONS), str | list)
        )

    def read(self, source: Source) -> list[Reading]:
        """The rollouts in one file."""
        return [_reading(source)]


def _number_in(name: str) -> int | None:
    digits = re.fullmatch(r"(?:completions_)?(\d{1,18})\.(?:parquet|jsonl)(?:\.gz)?", name)
    return int(digits[1]) if digits else None


def _is_rollouts(names: Any) -> bool:
    return any(name in names for name in _PROMPTS) and any(name in names for name in _COMPLETIONS)


def _any_key(text: bytes, names: tuple[str, ...]) -> bool:
    return any(f'"{name}":'.encode() in text for name in names)


def _parquet_names(source: Source) -> set[str]:
    from rlprobe.store.foreign_parquet import ForeignParquet

    file = ForeignParquet(source.path)
    return {*file.numbers, *file.texts}


@dataclass
class _Collected:
    """What has been read so far."""

    rollouts: Rollouts
    problems: list[Problem] = field(default_factory=list)
    unnumbered: int = 0
    summed: bool = False

    def leave_out(self, path: Path, message: str) -> None:
        """Note what could not be read."""
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(Problem(str(path), message))


def _reading(source: Source) -> Reading:
    collected = _Collected(Rollouts(Path(source.name).stem))
    _collect(source, collected)
    if not len(collected.rollouts):
        raise EmptyRunError(f"Couldn't find rollouts in '{source.path}': no row holds one")
    rollouts, table, notes = collected.rollouts.finish()
    if collected.summed:
        notes.append("reward: the sum of the reward functions; their weights are not in the file")
    if collected.unnumbered:
        notes.append(f"{collected.unnumbered:,} rollouts without a step: at step 0")
    return Reading(rows=table, rollouts=rollouts, notes=notes, problems=collected.problems)


def _collect(source: Source, collected: _Collected) -> None:
    rows = _parquet_rows(source) if source.head.startswith(_PARQUET) else _lines(source, collected)
    usual = _number_in(source.path.name)
    for row in rows:
        step = step_of(row, Completions.step_keys)
        if step is None and usual is None:
            collected.unnumbered += 1
        sampled = _sampled(row, (usual or 0) if step is None else step, collected)
        if sampled is not None:
            collected.rollouts.add(sampled)


def _parquet_rows(source: Source) -> Iterator[Mapping[str, Any]]:
    from rlprobe.store.foreign_parquet import ForeignParquet

    file = ForeignParquet(source.path)
    texts = [name for name in file.texts if name in (*_PROMPTS, *_COMPLETIONS, *_GROUPS)]
    for batch in file.batches([*file.numbers, *texts]):
        names = list(batch)
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(names, values, strict=True))


def _lines(source: Source, collected: _Collected) -> Iterator[Mapping[str, Any]]:
    for line_number, line in enumerate(source.lines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            collected.leave_out(source.path, f"line {line_number} left out: not JSON ({error})")
            continue
        if isinstance(row, dict):
            yield from _spread(row)
        else:
            collected.leave_out(source.path, f"line {line_number} left out: not an object")


def _spread(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The rollouts of a line: one, or (ms-swift) a column of them."""
    completions = _first(row, _COMPLETIONS)
    if not isinstance(completions, list) or not all(isinstance(c, str) for c in completions):
        yield row
        return
    for index in range(len(completions)):
        yield {key: _at(value, index, len(completions)) for key, value in row.items()}


def _at(value: Any, index: int, size: int) -> Any:
    return value[index] if isinstance(value, list) and len(value) == size else value


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _sampled(row: Mapping[str, Any], step: int, collected: _Collected) -> Sampled | None:
    completion = plain_text(_first(row, _COMPLETIONS))
    if completion is None:
        return None
    components = _components(row)
    reward = number(_first(row, _REWARDS))
    if reward is None and components:
        collected.summed |= len(components) > 1
        reward = sum(components.values())
    length = number(_first(row, _LENGTHS))
    group = _first(row, _GROUPS)
    return Sampled(
        step=step,
        prompt=plain_text(_first(row, _PROMPTS)),
        completion=completion,
        reward=reward,
        components=components,
        advantage=number(row.get("advantage")),
        group=None if group is None else str(group),
        length=int(length) if length is not None and 0 <= length < 2**31 else None,
        truncated=_truncated(row),
    )


def _components(row: Mapping[str, Any]) -> dict[str, float]:
    """Rewards by function. Where no total is given (TRL), every other number is one."""
    own = row.get("rewards")
    if isinstance(own, Mapping):
        given = own.items()
        return {str(name): v for name, raw in given if (v := number(raw)) is not None}
    total = _first(row, _REWARDS) is not None
    return {
        name: float(value)
        for name, value in row.items()
        if isinstance(value, float)
        and name not in _NO_COMPONENTS
        and (not total or _REWARD_WORD.search(name))
    }


def _truncated(row: Mapping[str, Any]) -> bool | None:
    value = row.get("truncated")
    if isinstance(value, bool):
        return value
    reason = row.get("finish_reason")
    return reason == "length" if isinstance(reason, str) else None
