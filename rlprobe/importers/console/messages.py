"""What a line of output says beside metrics: the messages of `schemas/messages.toml`.

A message counts only where a program would have printed it: what stands before it in its line may
be time stamps, levels, names of modules and hosts, prefixes of ranks and workers, and progress
bars. A completion or a source file that mentions it has other words there, or quotes.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlprobe import schema
from rlprobe.importers.console.prefixes import ANSI, unpacked
from rlprobe.importers.console.steps import BAR
from rlprobe.importers.numbers import spelled
from rlprobe.schema import KnownMessage

_QUOTED = 300  # characters of a line that an event quotes
_BEFORE, _AFTER = 1_000, 3_000  # looked at around a needle
_PERCENT, _MIB = "_percent", "_mib"
_NUMBER = re.compile(r"[-+]?(?:\d{1,18}|\d{0,18}\.\d{1,18}(?:[eE][-+]?\d{1,3})?)\.?")
_STEP_IN_PATH = re.compile(
    r"(?:checkpoint|ckpt|global_?step|step|iter|iteration|model)[-_=]?(\d{1,12})(?!\d)|_(\d{1,12})_steps\b"
)
# Before a line: `[rank3]:`, `[default3]:` of torchrun, `[1,3]<stderr>:` of mpirun, `3: ` of srun.
_RANK = re.compile(
    r"\s*(?:\([\w.:]+(?: pid=\d+)?(?:, ip=[\d.]+)?\)\s?)?"
    r"(?:\[(?:rank|default|trainer)(\d{1,6})\]:?|\[\d,(\d{1,6})\]<std(?:out|err)>:?|(\d{1,6}): )"
)
_LEAD = re.compile(
    r"""(?:
      \s+ | [-|>,.;=~^/]+ | \*{3}
    | \[[^\[\]'"`]{0,120}\]:? | \([^()'"`]{0,120}\) | <[\w ]{1,30}>:?
    | \d[\d:.,TZ/+-]*
    | (?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b
    | (?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL|[EWIF]\d{4})\b:?
    | (?:rank|Rank|pid|at|node)[ ]?\d+\b
    | [\w./@+-]{1,120}(?::[\w<>]{1,80})?:\d+\]?(?::[\w<>]{1,80})?:?
    | [\w.@/-]{1,80}(?:\[\d+\])?(?:\(\))?:(?!\S)
    | [\w.@-]{1,64}(?=\s+(?:kernel:|-\s|\|\s|slurmstepd))
    )*""",
    re.VERBOSE,
)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Message:
    """What one line says.

    Attributes:
        known: the entry of `schemas/messages.toml` that the line fits.
        text: the line, short and printable.
        rank: the rank that says it, None where the line does not tell.
        step: the step that the message itself names, which may be another counter than the rows'.
        data: what else it tells, numbers and text.
        metrics: numbers for a row of metrics.
    """

    known: KnownMessage
    text: str
    rank: int | None = None
    step: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


class Messages:
    """Reads messages in lines. Knows nothing of the lines before."""

    def __init__(self) -> None:
        self._by_needle: dict[str, list[KnownMessage]] = {}
        for known in schema.messages():
            self._by_needle.setdefault(known.needle, []).append(known)
        self._needles = tuple(self._by_needle)

    def see(self, text: str, rank: int | None = None) -> Message | None:
        """The message in a line, if it holds one.

        Args:
            text: with the prefixes of ranks and workers, or without.
            rank: of the process that printed it, where the line itself does not tell.
        """
        for needle in self._needles:
            if needle in text:
                text = unpacked(text)
                at = text.find(needle)
                around = text[max(0, at - _BEFORE) : at + _AFTER]
                around = ANSI.sub("", around) if "\x1b" in around else around
                for known in self._by_needle[needle]:
                    match = known.pattern.search(around)
                    if match and _may_stand_before(around[: match.start()]):
                        return _message(known, match, around, rank)
        return None


def every(message: Message, text: str) -> list[Message]:
    """A message, and the same of others: ranks that print at once may share a line."""
    known = message.known
    found = [_message(known, match, text, message.rank) for match in known.pattern.finditer(text)]
    return found or [message]


def _may_stand_before(lead: str) -> bool:
    """Whether a logger, a launcher or a progress bar may have put this before a message."""
    if "%|" in lead:
        end = max((bar.end() for bar in BAR.finditer(lead)), default=0)
        before, lead = lead[:end], lead[end:]
        if before.count("'") % 2 or before.count('"') % 2:  # a bar in a text that is quoted
            return False
    return not lead.strip() or _LEAD.fullmatch(lead) is not None


def _message(known: KnownMessage, match: re.Match[str], text: str, rank: int | None) -> Message:
    prefix = _RANK.match(text)
    printed = int(next(group for group in prefix.groups() if group)) if prefix else None
    fields = {name: _value(group) for name, group in match.groupdict().items() if group}
    own, step = fields.pop("rank", None), fields.pop("step", None)
    rank = next((number for number in (printed, own, rank) if number is not None), None)
    if step is None and "path" in fields:
        step = _step_in(str(fields["path"]))
    fields |= {} if rank is None else {"rank": rank}
    quoted = _UNPRINTABLE.sub(" ", text[match.start() :] if "%|" in text else text).strip()
    return Message(
        known,
        quoted[:_QUOTED],
        rank,
        step,
        {**known.data, **fields},
        _metrics(known, match),
    )


def _metrics(known: KnownMessage, match: re.Match[str]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for name, source in known.metrics.items():
        if not isinstance(source, str):
            metrics[name] = float(source)
        elif match[source]:
            value = spelled(match[source])
            if value is not None:
                metrics[name] = _in_unit(value, source)
    return metrics


def _in_unit(value: float, source: str) -> float:
    """A number in the metric's unit; the name of its group tells the one that it is printed in."""
    if source.endswith(_MIB):
        return value / 1024
    return round(value / 100, 9) if source.endswith(_PERCENT) else value


def _value(group: str) -> Any:
    """A number where the text is one."""
    if not _NUMBER.fullmatch(group):
        return _UNPRINTABLE.sub(" ", group)
    number = spelled(group.rstrip("."))
    if number is None or not math.isfinite(number):
        return group
    return int(number) if number.is_integer() and "." not in group.rstrip(".") else number


def _step_in(path: str) -> int | None:
    """The step that the last part of a path names, which has one."""
    found = _STEP_IN_PATH.findall(path)
    return int(found[-1][0] or found[-1][1]) if found else None


@functools.cache
def messages() -> Messages:
    """One reader for all logs."""
    return Messages()
