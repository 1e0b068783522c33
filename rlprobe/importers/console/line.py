"""One line of console output -> metrics, if the line holds any.

Understood are the dicts of the Hugging Face Trainer (4.x and 5.x), verl's `step:12 - key:value`,
OpenRLHF's `Global step 7: {…}` and slime's `rollout 7: {…}`, JSON objects, Megatron's
`iteration 10/ 100 | lm loss: 1.0E+00 | …`, and plain `step 12 | loss 0.52` in its usual spellings.
Nothing is evaluated. A line counts only if it has a number under a name that the vocabulary knows
as a measurement: a printed configuration has `learning_rate`, but no `loss`.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator

from rlprobe import naming, schema
from rlprobe.importers.console.pairs import ANSI, piped, plain_pairs
from rlprobe.importers.numbers import spelled

MAX_CHARACTERS = 32_768

_PAIR = re.compile(
    r"""\s*(?P<q>['"])(?P<key>[^'"]{1,200})(?P=q)\s*:\s*"""
    r"""(?P<value>'[^']*'|"[^"]*"|[^\s,(){}\[\]'"]+(?:\((?:[^()]|\([^()]*\))*\))?)\s*(?:,|$)"""
)
# What stands beside numbers in rows of metrics: `'1m 35s'`, `'12/500'`, `'3 days, 17:51:32'`.
_PASTIME = re.compile(r"['\"]?[\d:.,/ %dhmsay]*['\"]?")
_STEP_BEFORE = re.compile(
    r"\b(?:Global step|[Rr]ollout|[Pp]erf|[Ee]val|[Tt]rain|[Ss]tep) (\d+):?\s*\{"
)
_VERL = re.compile(r"\bstep:(\d+) - ")
_MEGATRON = re.compile(r"\biteration\s+(\d+)\s*/\s*\d+\s*\|")
_STEP = re.compile(
    r"(?:^|[\s\[({|,])(?:global[ _]step|train[_ ]step|steps?|iteration|iter)"
    r"\s{0,9}[:=#]?\s{0,9}(\d+)(?:\s{0,9}/\s{0,9}\d+)?(?=$|[\s\])}|,:;-])",
    re.IGNORECASE,
)
# Only where a line tells no step: a counter of something larger, or the place within an epoch.
_COARSE = re.compile(
    r"(?:^|[\s\[({|,])(?:episode|update|epoch|batch|rollout|round)\s{0,9}[:=#]?\s{0,9}(\d+)"
    r"(?:\s{0,9}/\s{0,9}\d+)?(?=$|[\s\])}|,:;-])",
    re.IGNORECASE,
)
_EPOCH_AND_PLACE = re.compile(r"\bepoch:?\s*\[(\d+)\]\s*\[\s*(\d+)\s*/\s*(\d+)\s*\]", re.IGNORECASE)
_SCALED = re.compile(r"(.{1,200})\((1e[-+]?\d{1,3})\)")  # `actor/lr(1e-4):0.010`
# Names that a configuration has as well: alone they do not make a line of metrics.
_SETTINGS = frozenset({"lr", "epoch", "step", "tokens_seen", "loss_scale"})
STEP_KEYS = schema.step_keys().formats["console"]
_PREFIXES = frozenset({"info", "debug", "warning", "train", "training", "root", "metrics", "and"})
_WORD = re.compile(r"[A-Za-z]{2,}")
_LONGEST_WORD = 300


def parse(line: str) -> dict[str, float] | None:
    """The metrics of a line by the names it gives them; None if it holds none.

    Where the line tells its step, the key `step` has it.
    """
    text = line if len(line) <= MAX_CHARACTERS else line[:MAX_CHARACTERS]
    if "{" not in text and not _may_tell_a_step(text):
        return None
    text = ANSI.sub("", text).strip()
    row = _stepped_dict(text) or _verl(text) or _megatron(text) or dictionary(text) or _plain(text)
    return row if row and measures(row) else None


def measures(row: dict[str, float]) -> bool:
    """Whether some key is a measurement, and not only a setting."""
    return any(is_measurement(key) for key in row)


_HINTS = ("step", "iter", "epoch", "episode", "update", "rollout", "batch", "round")


def _may_tell_a_step(text: str) -> bool:
    lower = text.lower()
    return any(hint in lower for hint in _HINTS)


def _stepped_dict(text: str) -> dict[str, float] | None:
    """A dict behind its step. What is no number in it is left out."""
    match = _STEP_BEFORE.search(text) if "{" in text else None
    if not match:
        return None
    pairs = _pairs(text[match.end() : text.rfind("}")])
    if pairs is None:
        return None
    row = {key: number for key, value in pairs if (number := spelled(value)) is not None}
    return {**row, "step": float(match[1])}


def _verl(text: str) -> dict[str, float] | None:
    match = _VERL.search(text) if " - " in text else None
    if not match:
        return None
    row = {"step": float(match[1])}
    for item in text[match.end() :].split(" - "):
        key, _, value = item.strip().rpartition(":")
        number = spelled(value)
        scaled = _SCALED.fullmatch(key)
        if scaled and number is not None:
            row[scaled[1]] = number * float(scaled[2])
        elif key and number is not None:
            row[key] = number
    return row


def _megatron(text: str) -> dict[str, float] | None:
    match = _MEGATRON.search(text) if "|" in text else None
    if not match:
        return None
    return {**dict(piped(text[match.end() :])), "step": float(match[1])}


def dictionary(text: str) -> dict[str, float] | None:
    """A flat dict of nothing but numbers; one with other values is no row of metrics."""
    start, end = text.find("{"), text.rfind("}")
    pairs = _pairs(text[start + 1 : end]) if 0 <= start < end else None
    if not pairs:
        return None
    row: dict[str, float] = {}
    names = {key for key, _ in pairs}
    for key, value in pairs:
        if key in STEP_KEYS or (key == "episode" and not names.intersection(STEP_KEYS)):
            step = spelled(value.strip("'\"").partition("/")[0])
            if step is not None:
                row.setdefault("step", step)
            continue
        number = spelled(value)
        if number is None and value not in {"None", "null"} and not _PASTIME.fullmatch(value):
            return None
        if value in {"True", "False", "true", "false"}:
            return None
        if number is not None:
            row[key] = number
    return row


def _pairs(inside: str) -> list[tuple[str, str]] | None:
    """Keys and unread values between the braces; None where the text is something else."""
    pairs, position = [], 0
    inside = inside.rstrip()
    while position < len(inside):
        match = _PAIR.match(inside, position)
        if match is None:
            return None
        pairs.append((match["key"], match["value"]))
        position = match.end()
    return pairs


def parse_coarse(line: str) -> dict[str, float] | None:
    """The metrics of a line whose `step` counts something larger: epochs, episodes, updates."""
    text = ANSI.sub("", line[:MAX_CHARACTERS]).strip()
    row = _plain(text, coarse=True) if _may_tell_a_step(text) else None
    return row if row and measures(row) else None


def _plain(text: str, *, coarse: bool = False) -> dict[str, float] | None:
    parts = text.split()
    if "{" in text or max(map(len, parts), default=0) > _LONGEST_WORD:
        return None
    text = " ".join(parts)  # runs of blanks and endless words would make the patterns slow
    place = coarse_step_in(text) if coarse or "num_updates=" in text else step_in(text)
    if place is None:
        return None
    step, start, end = place
    row, words = _read(text[:start], text[end:])
    step = row.pop("num_updates", step)  # fairseq, beside its epoch
    # Prose may mention a step and a number: what is left beside the pairs tells the difference.
    return {**row, "step": step} if words <= 2 + 2 * len(row) else None


def _read(before: str, after: str) -> tuple[dict[str, float], int]:
    row: dict[str, float] = {}
    words = 0
    for part, counted in ((before, False), (after, True)):
        pairs, rest = plain_pairs(part)
        row |= {_known(key): value for key, value in pairs}
        words += len(_WORD.findall(rest)) if counted else 0
    return row, words


def step_in(text: str) -> tuple[float, int, int] | None:
    """The step that a line of text tells, and where it stands."""
    match = _STEP.search(text)
    if match:
        return float(match[1]), match.start(), match.end()
    match = _EPOCH_AND_PLACE.search(text)
    if match:
        epoch, place, size = (int(part) for part in match.groups())
        return float(epoch * size + place), match.start(), match.end()
    return None


def coarse_step_in(text: str) -> tuple[float, int, int] | None:
    """The count of something larger than steps that a line tells, and where it stands."""
    match = _COARSE.search(text)
    return (float(match[1]), match.start(), match.end()) if match else None


def _known(phrase: str) -> str:
    """A phrase before a number without what loggers put before a name: `INFO train loss`."""
    words = phrase.split(" ")
    while len(words) > 1 and words[0].lower() in _PREFIXES and not _named(" ".join(words)):
        del words[0]
    return " ".join(words)


def labelled(phrase: str) -> str | None:
    """The known measurement that a label of words is; None if it is none."""
    name = _known(phrase)
    return name if is_measurement(name) else None


@functools.lru_cache(maxsize=4096)
def _named(key: str) -> frozenset[str]:
    names = {table.canonical(key) for table in naming.every().values()}
    return frozenset(name for name in names if name)


@functools.lru_cache(maxsize=4096)
def is_measurement(key: str) -> bool:
    """Whether some framework measures something under this name."""
    names = _named(key)
    return bool(names) and not names & _SETTINGS and key not in _SETTINGS


def step_of(row: dict[str, float]) -> int | None:
    """The step that a parsed row tells, if it is one."""
    step = row.get("step", math.nan)
    return int(step) if step == step and 0 <= step < 2**53 else None  # noqa: PLR0124 - NaN


def dicts_in(text: str) -> Iterator[str]:
    """Flat `{…}` groups of a line, in order."""
    position = 0
    while (start := text.find("{", position)) >= 0:
        end = text.find("}", start)
        if end < 0:
            return
        inner = text.rfind("{", start, end)
        yield text[inner : end + 1]
        position = end + 1
