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
from collections.abc import Iterable, Iterator

from rlprobe import naming, schema
from rlprobe.counters import is_counter
from rlprobe.importers.console.pairs import NUMBER, Pair, metrics_of, pairs_in, piped, words_beside
from rlprobe.importers.console.prefixes import ANSI
from rlprobe.importers.numbers import spelled
from rlprobe.importers.steps import LARGEST, best_step_key, step_number

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
    r"\s{0,9}[:=#]?\s{0,9}(\d{1,15})(?:\s{0,9}/\s{0,9}\d{1,15})?(?=$|[\s\])}|,:;-])",
    re.IGNORECASE,
)
# Torchvision's `Epoch: [2]  [7/100]` counts from 0, mmengine's `Epoch(train) [3][7/100]` from 1.
_EPOCH_AND_PLACE = re.compile(
    r"\bepoch(?:\((?P<mode>\w{1,9})\))?(?P<colon>:?)\s?\[\s?(?P<epoch>\d{1,15})(?:/\d{1,15})?\]"
    r"\s?\[\s?(?P<at>\d{1,15})\s?/\s?(?P<of>\d{1,15})\s?\]",
    re.IGNORECASE,
)
_HELD_OUT = re.compile(r"\b(?:Epoch|Iter)\((?:val|test|valid)\)")
_SCALED = re.compile(r"(.{1,200})\((1e[-+]?\d{1,3})\)")  # `actor/lr(1e-4):0.010`
# Names that a configuration has as well: alone they do not make a line of metrics.
_INTERVALS = frozenset({"every", "interval", "freq", "frequency", "batch_size", "size", "delay"})
_SETTINGS = frozenset({"lr", "epoch", "step", "tokens_seen", "loss_scale"})
# Words of the counters that count optimizer steps, and of those that count something beside them.
_FINE = frozenset(
    {"step", "steps", "timestep", "timesteps", "iter", "iters", "iteration", "iterations", "itr"}
    | {"update", "updates", "nupdates"}
)
_OTHER = frozenset(
    {"epoch", "epochs", "max", "env", "inner", "micro", "batch", "eval", "test", "val"}
    | {"warmup", "save", "log"}
)
# `losses/value_loss 0.5 2048`: a scalar of TensorBoard, printed; `[2048] loss 0.5 / return 9`.
_POINT = re.compile(rf"(?P<tag>[A-Za-z_][\w./@-]*)\s+(?P<value>{NUMBER})\s+(?P<step>\d{{1,15}})")
_LEADING = re.compile(r"\[?(\d{1,15})\]?:?\s+(?=[A-Za-z_])")
_CONTEXT = re.compile(
    r"(?:^|\W)(?:global[ _])?step:?\s+(\d{1,15})\s*\]?\s*:?\s*$|\[Global Step: (\d{1,15})\]", re.I
)
_SLASHED = re.compile(
    r"(?<==\d)(\d{0,15})/(?=[a-z_]{1,40}=)"
)  # `epoch=0/micro_step=10/global_step=10`
_SECONDS = frozenset(
    {"s", "sec", "secs", "second", "seconds", "ms", "us", "µs", "m", "min", "mins", "h", "hours"}
)
_LOGGED = frozenset({"info", "debug", "warning", "root", "metrics"})
_PREFIXES = _LOGGED | {"train", "training", "and", "with"}
_BEFORE_BODY = re.compile(
    r"(?:\w[\w ]{0,20}\s?[|:>]{1,3}\s+)?(?=['\"])"
)  # of a dict without braces
_LONGEST_WORD = 300
_FIRST = frozenset("[0123456789")
MOST_BLANKS = 6  # in a name; what has more is a sentence
_FEWEST = 2  # pairs that make a dict without its braces
_WORDS = re.compile(r"[^a-z]+")


def parse(line: str, step_key: str | None = None) -> dict[str, float] | None:
    """The metrics of a line by the names it gives them; None if it holds none that are known.

    Where the line tells its step, the key `step` has it; other counters keep their names.

    Args:
        step_key: the counter to take for the step, where the line has it.
    """
    row = row_in(line, step_key)
    return row if row and measures(row) else None


def row_in(line: str, step_key: str | None = None) -> dict[str, float] | None:
    """The same of a line of any names; None if it has not the form of a row."""
    text = line if len(line) <= MAX_CHARACTERS else line[:MAX_CHARACTERS]
    if not _may_be_row(text):
        return None
    text = ANSI.sub("", text).strip()
    return (
        _stepped_dict(text)
        or _verl(text)
        or _megatron(text)
        or dictionary(text, step_key)
        or _plain(text, step_key=step_key)
    )


def measures(row: dict[str, float]) -> bool:
    """Whether some key is a measurement, and not only a setting."""
    return any(is_measurement(key) for key in row)


_LARGER = ("epoch", "episode", "rollout", "batch", "round", "sample", "example", "token", "frame")
_HINTS = ("step", "iter", "epoch", "episode", "update", "rollout", "batch", "round", "itr")


def _may_be_row(text: str) -> bool:
    start = text[:1]
    return "{" in text or "'" in text or start in _FIRST or _may_tell_a_step(text)


def _may_tell_a_step(text: str) -> bool:
    lower = text.lower()
    return any(hint in lower for hint in _HINTS)


def point(text: str) -> dict[str, float] | None:
    """A scalar with its tag and step (`losses/value_loss 0.5 2048`); None if the line is none."""
    match = _POINT.fullmatch(text.strip()) if len(text) < _LONGEST_WORD else None
    value = spelled(match["value"]) if match else None
    if match is None or value is None or counts(match["tag"]):
        return None
    return {match["tag"]: value, "step": float(match["step"])}


def step_before(text: str) -> int | None:
    """Where the step of a dict stands that opens at the end of a text; None if there is none."""
    match = _STEP_BEFORE.search(text) if text.endswith("{") else None
    return match.start() if match and match.end() == len(text) else None


def context_in(text: str) -> int | None:
    """The step that a line of nothing else tells for the dict after it."""
    match = _CONTEXT.search(text) if "tep" in text else None
    return int(match[1] or match[2]) if match else None


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


def dictionary(text: str, step_key: str | None = None) -> dict[str, float] | None:
    """A flat dict of nothing but numbers; one with other values is no row of metrics.

    The braces may be missing where nothing but quoted names and their numbers is in the line.
    """
    start, end = text.find("{"), text.rfind("}")
    inside = text[start + 1 : end] if 0 <= start < end else ""
    if start < 0 and (led := _BEFORE_BODY.match(text)):
        inside = text[led.end() :]
    pairs = _pairs(inside)
    if not pairs or (start < 0 and len(pairs) < _FEWEST):
        return None
    if any(key.count(" ") > MOST_BLANKS for key, _ in pairs):
        return None  # a sentence
    step_at = _dict_step([key for key, _ in pairs], step_key)
    row: dict[str, float] = {}
    for key, value in pairs:
        if key == step_at:
            step = step_number(value.strip("'\""))
            if step is not None:
                row |= {key: float(step)} if step_key is not None else {}
                row["step"] = float(step)
            continue
        number = spelled(value)
        if number is None and value not in {"None", "null"} and not _PASTIME.fullmatch(value):
            return None
        if value in {"True", "False", "true", "false"}:
            return None
        if number is not None:
            row[key] = number
    return row


def _dict_step(names: list[str], step_key: str | None) -> str | None:
    """The name of a dict's step: a counter of steps, or of episodes where there is none."""
    if step_key is not None and (found := best_step_key(names, step_key)):
        return found
    if fine := [name for name in names if is_fine(name)]:
        return best_step_key(fine)
    return "episode" if "episode" in names else None


@functools.lru_cache(maxsize=4096)
def is_fine(key: str) -> bool:
    """Whether a name counts steps, and nothing larger or smaller than steps."""
    words = set(_WORDS.split(key.lower()))
    if "total" in words and "/" not in key and "timesteps" not in words:
        return False  # how many there will be
    if key in {"progress/batch", "global_step/max_steps"}:
        return True
    return bool(words & _FINE) and not words & _OTHER and is_counter(key)


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
    """The metrics of a line whose `step` counts something larger: epochs, episodes, rounds."""
    text = ANSI.sub("", line[:MAX_CHARACTERS]).strip()
    lower = text.lower()
    row = _plain(text, coarse=True) if any(hint in lower for hint in _LARGER) else None
    return row if row and measures(row) else None


def _plain(
    text: str, *, coarse: bool = False, step_key: str | None = None
) -> dict[str, float] | None:
    parts = text.split()
    if "{" in text or max(map(len, parts), default=0) > _LONGEST_WORD:
        return None
    # Endless blanks and words would make the patterns slow.
    text = _SLASHED.sub(r"\1, ", " ".join(parts).replace("**", ""))
    if _HELD_OUT.search(text):
        row = metrics_of(pairs_in(text), name_of)
        return {f"eval/{shortened(key)}": value for key, value in row.items()}
    counted, row = _sorted_out(pairs_in(text))
    place = _step_among(counted, step_key, coarse=coarse)
    if not coarse and (place is None or "[" in text):
        place = step_in(text) or place
    if place is None:
        return _led(text, row) if row and not coarse else None
    step, start, end = place
    for name, pair in counted.items():
        asked = step_key is not None and pair.value == step
        if asked or not start <= pair.start < end:
            row.setdefault(name, pair.value)
    words = words_beside(text[end:], pairs_in(text[end:]))
    # Prose may mention a step and a number: what is left beside the pairs tells the difference.
    return {**row, "step": step} if words <= 2 + 2 * len(row) else None


def _led(text: str, row: dict[str, float]) -> dict[str, float] | None:
    """A row whose step is the bare number before it; nothing but pairs may follow."""
    match = _LEADING.match(text)
    if match is None or words_beside(text, pairs_in(text)):
        return None
    return {**row, "step": float(match[1])}


def _sorted_out(pairs: list[Pair]) -> tuple[dict[str, Pair], dict[str, float]]:
    """The counters among pairs, by what they count, and the metrics."""
    counted: dict[str, Pair] = {}
    rest: list[Pair] = []
    for pair in pairs:
        name = counter_in(pair)
        if name:
            counted.setdefault(name, pair)
        else:
            rest.append(pair)
    return counted, {shortened(key): value for key, value in metrics_of(rest, name_of).items()}


def counter_in(pair: Pair) -> str:
    """What a pair counts (`iter` in `INFO iter 12`); empty if it measures something."""
    if not pair.value.is_integer() or pair.value < 0:
        return ""
    return _counter_of(pair.key.replace("(train)", ""))


def counts(key: str) -> bool:
    """Whether a name, or what its last part names, counts something."""
    return bool(_counter_of(key))


@functools.lru_cache(maxsize=4096)
def _counter_of(phrase: str) -> str:
    if is_counter(phrase):
        return phrase
    words = phrase.split(" ")
    shorter = (" ".join(words[first:]) for first in range(1, len(words)))
    return next((name for name in shorter if best_step_key([name])), "")


def _step_among(
    counted: dict[str, Pair], step_key: str | None, *, coarse: bool
) -> tuple[float, int, int] | None:
    """The best of the counters, and where it stands."""
    names = [name for name in counted if coarse or is_fine(name)]
    best = best_step_key(counted, step_key) if step_key else None
    best = best or best_step_key(names)
    return (counted[best].value, counted[best].start, counted[best].end) if best else None


def step_in(text: str) -> tuple[float, int, int] | None:
    """The step that a line of text tells, and where it stands."""
    match = _EPOCH_AND_PLACE.search(text)
    if match:
        epoch = int(match["epoch"]) - (not match["colon"])
        return float(epoch * int(match["of"]) + int(match["at"])), match.start(), match.end()
    match = _STEP.search(text)
    return (float(match[1]), match.start(), match.end()) if match else None


def shortened(phrase: str) -> str:
    """A phrase before a number without what loggers put before a name: `INFO train loss`."""
    words = phrase.split(" ")
    while len(words) > 1 and words[0].lower() in _PREFIXES and not naming.anywhere(" ".join(words)):
        del words[0]
    return " ".join(words)


def meanings(keys: Iterable[str]) -> set[str]:
    """The canonical metrics that these names may stand for."""
    return {name for key in keys for name in naming.anywhere(key)}


@functools.lru_cache(maxsize=4096)
def is_measurement(key: str) -> bool:
    """Whether some framework measures something under this name."""
    names = {name for name in naming.anywhere(key) if not _is_interval(name)}
    return bool(names) and not names & _SETTINGS and key not in _SETTINGS


def _is_interval(name: str) -> bool:
    """Whether an `eval/…` says how often, or over how much, is evaluated (`eval_steps`)."""
    inner = name.removeprefix("eval/")
    return inner != name and (is_counter(inner) or inner in _INTERVALS)


def name_of(pair: Pair) -> str:
    """The name of what a pair measures: `reward=5.9s` is no reward, but how long it took."""
    if pair.unit.lower() not in _SECONDS:
        return pair.key
    known = [metric for name in meanings([pair.key]) if (metric := schema.metric(name))]
    return f"time/{pair.key}" if known and all(m.unit != "s" for m in known) else pair.key


def step_of(row: dict[str, float]) -> int | None:
    """The step that a parsed row tells, if it is one."""
    step = row.get("step", math.nan)
    return int(step) if step == step and 0 <= step < LARGEST else None  # noqa: PLR0124 - NaN


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
