"""The arguments of `Recorder.samples` as rollouts: one odd value costs no other.

Runs on the writer thread. A value that cannot be kept is None, "not recorded", and is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlprobe.recorder.group_names import GroupNames
from rlprobe.store.faults import is_of_value
from rlprobe.store.text import plain_text, text_of
from rlprobe.values import Rollout

# Arguments with one value per rollout or per group.
ARGUMENTS = (
    "prompts",
    "completions",
    "rewards",
    "advantages",
    "completion_lengths",
    "truncated",
    "group_ids",
    "prompt_ids",
    "logprob_means",
    "kls",
)
_FLOATS = ("rewards", "advantages", "logprob_means", "kls")
_INT32 = 2**31
Odd = Callable[[str], None]


def rollouts_of(
    step: int,
    attempt: int,
    rank: int,
    call: int,
    content: Mapping[str, Any],
    names: GroupNames,
    odd: Odd,
) -> list[Rollout]:
    """The rollouts of one call.

    Args:
        names: gives groups their names.
        odd: called with the name of an argument for each value that is left out.
    """
    completions = [plain_text(item) for item in _items("completions", content["completions"], odd)]
    size = len(completions)
    columns = {name: _column(name, content.get(name), size, odd) for name in _FLOATS}
    components = {
        text_of(name): _column("reward_components", values, size, odd)
        for name, values in (content["reward_components"] or {}).items()
    }
    prompts = [plain_text(item) for item in _spread("prompts", content["prompts"], size, odd)]
    groups = _groups(content, prompts, step, call, names, odd)
    lengths = _column("completion_lengths", content.get("completion_lengths"), size, odd)
    truncated = _column("truncated", content.get("truncated"), size, odd)
    ids = _spread("prompt_ids", content.get("prompt_ids"), size, odd)
    return [
        Rollout(
            step=step,
            attempt=attempt,
            rank=rank,
            group_id=groups[index],
            sample_id=f"a{attempt}.s{step}.r{rank}.c{call}.{index}",
            prompt_id="" if ids[index] is None else text_of(ids[index]),
            prompt=prompts[index],
            completion=completions[index],
            reward=columns["rewards"][index],
            reward_components=_earned(components, index),
            advantage=columns["advantages"][index],
            completion_length=_whole(lengths[index], odd),
            truncated=None if truncated[index] is None else bool(truncated[index]),
            logprob_mean=columns["logprob_means"][index],
            kl=columns["kls"][index],
        )
        for index in range(size)
    ]


def _earned(components: Mapping[str, list[float | None]], index: int) -> dict[str, float]:
    values = ((name, column[index]) for name, column in components.items())
    return {name: value for name, value in values if value is not None}


def _items(name: str, values: Any, odd: Odd) -> list[Any]:
    """The entries of a sequence; none where it is no sequence."""
    try:
        if hasattr(values, "detach"):
            values = values.cpu()
        return list(values.tolist() if hasattr(values, "tolist") else values)
    except BaseException as error:  # a value's own code may raise anything
        if not is_of_value(error):
            raise
        odd(name)
        return []


def _column(name: str, values: Any, size: int, odd: Odd) -> list[float | None]:
    """One number per rollout, from one per rollout, or groups of as many."""
    if values is None:
        return [None] * size
    items = _items(name, values, odd)
    if len(items) != size and all(isinstance(item, list | tuple) for item in items):
        items = [one for item in items for one in item]
    if len(items) != size:
        odd(name)
    return [_number(name, item, odd) for item in (items + [None] * size)[:size]]


def _number(name: str, value: Any, odd: Odd) -> float | None:
    if value is None:
        return None
    try:
        one: Any = value[0] if isinstance(value, list) and len(value) == 1 else value
        return float(one)
    except BaseException as error:
        if not is_of_value(error):
            raise
        odd(name)
        return None


def _spread(name: str, values: Any, size: int, odd: Odd) -> list[Any]:
    """One value per rollout, from one per rollout or one per group of equal size."""
    if values is None:
        return [None] * size
    items = _items(name, values, odd)
    if items and len(items) < size and size % len(items) == 0:
        share = size // len(items)
        return [item for item in items for _ in range(share)]
    if len(items) != size:
        odd(name)
    return (items + [None] * size)[:size]


def _whole(value: float | None, odd: Odd) -> int | None:
    """A length; None for NaN, which stands for none."""
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return None
    if abs(value) >= _INT32:
        odd("completion_lengths")
        return None
    return int(value)


def _groups(
    content: Mapping[str, Any],
    prompts: Sequence[str | None],
    step: int,
    call: int,
    names: GroupNames,
    odd: Odd,
) -> list[str]:
    size = len(prompts)
    given = content.get("group_ids")
    if given is not None:
        ids = [text_of(item) for item in _spread("group_ids", given, size, odd)]
        return names.given(step, call, ids)
    group_size = _group_size(content.get("group_size"), odd)
    if group_size:
        if size % group_size:
            odd("group_size")
        return names.numbered(step, call, [index // group_size for index in range(size)])
    return names.numbered(step, call, prompts)


def _group_size(value: Any, odd: Odd) -> int:
    try:
        number = int(value or 0)
    except BaseException as error:
        if not is_of_value(error):
            raise
        number = -1
    if number < 0:
        odd("group_size")
    return max(number, 0)
