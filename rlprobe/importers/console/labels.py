"""One line of a block -> names and numbers: `loss: 0.5`, `| loss | 0.5 |`, `│ a=1 │ b=2 │`.

A block is printed over several lines: a panel between rules, a box, names under a heading, YAML.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from rlprobe.importers.console import line as console_line
from rlprobe.importers.console.pairs import (
    NUMBER,
    SOURCE_FILES,
    Pair,
    left_of,
    measured,
    metrics_of,
    pairs_in,
    value_of,
    words_beside,
)
from rlprobe.importers.numbers import spelled

Kind = Literal["labels", "section", "rule", "inner rule", "text"]

LONGEST = 600
_RULE = re.compile(r"\s*[-=─━═_*#~+|│┃╭╮╰╯╒╕╞╡╘╛┌┐└┘├┤┬┴┼╪┏┓┗┛┠┨┡┩╇╈\s]{3,}")
_PIECE = re.compile(r"\s*(?:[│┃|]\s*)+|\s*[─━═]+[┤┨╡┫╮┓┐╕╯┛┘╛]?\s*")  # of a broken box
_LINES = re.compile(r"[-=─━═*#]{6,}")
_INNER = re.compile(r"\s*(?:[├╞┠┡╟]|[│┃|]\s*[─━═-]{3}|[│┃|][│┃|\s]*$)")
_TWO_COLUMNS = re.compile(
    rf"\s*(?P<key>[A-Za-z_][\w./@%()#-]*(?: [\w./@%()-]+){{0,3}})\s{{2,}}(?P<value>{NUMBER})\s*",
    re.IGNORECASE,
)
# What wandb prints in the end: names to the right, a number behind each.
_SUMMARY = re.compile(
    rf"\s{{4,}}(?P<key>[A-Za-z_][\w./@%()#-]*) (?P<value>{NUMBER})\s*", re.IGNORECASE
)
_LABEL = re.compile(
    r"\W*(?P<key>[A-Za-z_][\w ()./@%-]{0,80}?)\s{0,20}[:=]\s{0,20}=?\s{0,20}"
    r"(?P<value>[-+]?[\d.,]+(?:[eE][-+]?\d+)?|nan|[-+]?inf(?:inity)?)\s{0,9}(?P<unit>[a-zA-Z%/]{0,12})\s*",
    re.IGNORECASE,
)
_YAML = re.compile(r"(?P<indent>\s*)(?P<key>[A-Za-z_][\w./@-]{0,80}):(?:\s+(?P<value>\S.*?))?\s*")
_RESULT = re.compile(r"\s*Result for [\w./-]{1,200}:\s*")  # of Ray Tune
_GROUP = re.compile(r"\s*(?P<group>[A-Za-z_][\w./-]{0,40})(?:\s{2,}|\s*=>\s*)(?=[A-Za-z_])")
_ASIDE = re.compile(r"\s*\([^()]{0,60}\)")
_KERAS = re.compile(r"\s*\d+/(?:\d+|Unknown)\s*[\[━][^-]{0,120}? - ")
_WORD = re.compile(r"[A-Za-z]{2,}")
_LISTED = re.compile(r"\s*(?:[/|,;]\s*)+")  # nothing but what separates pairs
_MOST_WORDS = 3


@dataclass(slots=True)
class Labelled:
    """What a line of a block holds.

    Attributes:
        kind: `labels` has metrics, or a name with text; `section` names those that follow; `rule`
            ends a block, `inner rule` does not.
        counters: whole numbers that count something, by what they count.
        section: the name that the line gives to those below it.
        indent: blanks before a line of YAML.
        panel: whether bars or columns make it a line of a table of names.
        redrawn: whether it takes the place of the line before it (a bar of Keras).
        measures: whether some of its names are known as measurements; None: not looked at.
    """

    kind: Kind = "text"
    metrics: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    section: str = ""
    indent: int = -1
    panel: bool = False
    redrawn: bool = False
    measures: bool | None = None


def labelled(text: str) -> Labelled:
    """What a line holds that is no row by itself."""
    if len(text) > LONGEST:
        return Labelled()
    if _PIECE.fullmatch(text) or _RULE.fullmatch(text) or _is_ruled(text):
        inner = _PIECE.fullmatch(text) or _INNER.match(text)
        return Labelled("inner rule" if inner else "rule")
    if _RESULT.fullmatch(text):
        return Labelled("section", indent=0)
    stripped = text.strip()
    if stripped[:1] in "|│┃" and stripped:
        return _barred(stripped)
    if console_line.point(text) is not None:
        return Labelled()
    found = _columns(text) or _label(text)
    if found is None and ("±" in text or "+-" in text):
        found = _several(text)  # before it is taken for a name with text
    return found or _yaml(text) or _several(text) or Labelled()


def _is_ruled(text: str) -> bool:
    return bool(_LINES.search(text)) and "===" not in text and _is_title(text)


def _is_title(text: str) -> bool:
    """Whether a line is a rule with a few words in it: `├──── Time ────┤`."""
    return (
        not pairs_in(text)
        and len(_WORD.findall(text)) <= _MOST_WORDS
        and not re.search(r"\d", text)
    )


def _barred(text: str) -> Labelled:
    """A line between bars: name, number, name, number; or a name with its number in each cell."""
    bar = "│" if "│" in text else "┃" if "┃" in text else "|"
    cells = [cell.replace("**", "") for cell in text.strip(bar).split(bar)]
    plain = [cell.strip() for cell in cells]
    label = Labelled("labels", panel=True)
    if len(plain) == 2 and plain[0].endswith("/") and not plain[1]:
        return Labelled("section", section=plain[0][:-1], indent=_depth(cells[0]), panel=True)
    if len(plain) >= 2 and len(plain) % 2 == 0 and not any(map(_holds_pair, plain[::2])):
        for key, cell in zip(plain[::2], plain[1::2], strict=True):
            value = measured(cell) if key else None
            if value is not None and not key[0].isdigit():
                _take(label, key, value)
        label.indent = _depth(cells[0]) if bar == "|" and len(plain) == 2 else -1
        return label if label.metrics or label.counters else Labelled()
    for cell in cells:
        part = _columns(cell) or _several(cell) or Labelled()
        label.metrics |= part.metrics
        label.counters |= part.counters
    return label if label.metrics or label.counters else Labelled()


def _depth(cell: str) -> int:
    return len(cell) - len(cell.lstrip())


def _holds_pair(cell: str) -> bool:
    return "=" in cell or bool(re.search(r":\s", cell)) or spelled(cell) is not None


def _columns(text: str) -> Labelled | None:
    """A name and a number in two columns (garage, rlpyt)."""
    match = _TWO_COLUMNS.fullmatch(text) or _SUMMARY.fullmatch(text)
    if match is None:
        return None
    label = Labelled("labels", panel=True)
    value = spelled(match["value"])
    if value is None:
        return None
    _take(label, match["key"], value)
    return label


def _take(into: Labelled, key: str, value: float) -> None:
    """A metric, or a counter: `x` and the last part of `a/x` count where they are known to."""
    if value.is_integer() and value >= 0 and console_line.counts(key):
        into.counters[key] = value
    else:
        into.metrics[key] = value


def _label(text: str) -> Labelled | None:
    """One name with its number and nothing else."""
    match = _LABEL.fullmatch(text)
    if match is None and "(" in text:
        match = _LABEL.fullmatch(_ASIDE.sub("", text))
    if match is None:
        return None
    value = value_of(match["value"].rstrip(".,"), match["unit"])
    key = console_line.shortened(match["key"].strip())
    if value is None or not key or key.count(" ") > console_line.MOST_BLANKS:
        return None
    if key.endswith(SOURCE_FILES):
        return None  # a place
    if len(key) == 1 and not console_line.is_measurement(key):
        return None  # a variable
    label = Labelled("labels", indent=_depth(text))
    _take(label, key, value)
    return label


def _several(text: str) -> Labelled | None:
    """Several names with their numbers, and few other words."""
    text = text.replace("**", "")
    redrawn = _KERAS.match(text)
    if redrawn:
        text = text[redrawn.end() :]
    group = _GROUP.match(text)
    # open-instruct groups by what stands before the slash; under `other` nothing does.
    named = group is not None and group["group"] != "other"
    prefix, inside = (
        f"{group['group']}/" if group and named else "",
        text[group.end() if group else 0 :],
    )
    pairs = pairs_in(inside)
    if len(pairs) < 2 or not _is_list(left_of(inside, pairs), len(pairs)):
        pairs = [pair for pair in pairs if _is_named(pair)]
    words = words_beside(inside, pairs)
    if not pairs or words > (_MOST_WORDS if len(pairs) == 1 else len(pairs) + 1):
        return None
    label = Labelled("labels", redrawn=redrawn is not None)
    for pair in pairs:
        counter = console_line.counter_in(pair)
        if counter:
            label.counters.setdefault(counter, pair.value)
    measured = [pair for pair in pairs if not console_line.counter_in(pair)]
    for key, value in metrics_of(measured, console_line.name_of).items():
        label.metrics[prefix + console_line.shortened(key)] = value
    return label


def _is_list(left: str, pairs: int) -> bool:
    """Whether all that is left beside so many pairs is what stands between each two of them."""
    return bool(_LISTED.fullmatch(left)) and len("".join(left.split())) >= pairs - 1


def _is_named(pair: Pair) -> bool:
    """Whether words before a number are a name: with a sign between, or as names are spelled."""
    return (
        (not pair.blank and len(pair.key) > 1)
        or "/" in pair.key
        or "_" in pair.key
        or console_line.is_measurement(console_line.shortened(pair.key))
    )


def _yaml(text: str) -> Labelled | None:
    """A line of YAML that holds no number: a section, or a name with text."""
    match = _YAML.fullmatch(text)
    if match is None:
        return None
    indent = len(match["indent"])
    if match["value"] is None:
        return Labelled("section", section=match["key"], indent=indent)
    return Labelled("labels", indent=indent) if len(match["value"]) < 80 and indent else None
