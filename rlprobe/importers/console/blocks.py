"""What is printed over several lines -> rows: panels, boxes, YAML, names under a heading.

A block's step is its own counter (Stable-Baselines3's `total_timesteps`, RLlib's
`training_iteration`), else that of the heading above it (RSL-RL's `Learning iteration 7/100`), else
that of the row before it (DeepSpeed-Chat's `Average reward score`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rlprobe.importers.console import labels
from rlprobe.importers.console import line as console_line
from rlprobe.importers.console.labels import Labelled
from rlprobe.importers.console.prefixes import bare
from rlprobe.importers.steps import best_step_key

Row = dict[str, float]
Lines = Sequence[tuple[int, str]]
Sample = tuple[int, int, str]  # how many lines, and the number and text of the first
Where = Literal["own", "heading", "coarse", "after", "nowhere"]

_HEADING = re.compile(
    r"(?:^|[^\w/])(?P<name>(?:learning |global |train(?:ing)? )?(?:iteration|step|iter|itr|update)|"
    r"(?:epoch|episode|round))\s{0,9}[ =:#]\s{0,9}#?(?P<at>\d{1,15})(?P<of>\s{0,9}/\s{0,9}\d+)?"
    r"(?:,\s?epoch=\d+)?(?: done)?\W*$",
    re.IGNORECASE,
)
_HEADED = ("heading", "coarse")
_COARSE = frozenset({"epoch", "episode", "round"})
_WORD = re.compile(r"[A-Za-z]{2,}")
_MOST_WORDS = 6  # of a heading
_FEWEST = 2  # names that make a table
_FEW = 3  # lines of a group that are quoted
_MOST_KEYS = 2_000
_MOST_VALUES = 1_000
_CONFIG = frozenset({"config", "hyperparameters", "args"})


@dataclass(slots=True)
class Group:
    """The metrics of one block.

    Attributes:
        metrics: under names that are known, or in a table.
        others: under other names: metrics only if they come again and again.
        step: where a counter or a heading tells it.
        where: what told it; `after`: it belongs to the row before it; `nowhere`: nothing tells.
        repeated: names that came several times: these are samples, and their mean is given.
        lines: numbers and texts of lines with known names that it is made of, a few of many.
        count: how many these are.
        samples: lines of unknown names that came several times.
    """

    metrics: Row
    step: int | None
    where: Where
    others: Row = field(default_factory=dict)
    repeated: frozenset[str] = frozenset()
    lines: Lines = ()
    count: int = 0
    samples: Sample = (0, 0, "")


@dataclass(slots=True)
class _Block:
    """Lines that stand together."""

    metrics: Row = field(default_factory=dict)
    sure: set[str] = field(default_factory=set)
    counters: Row = field(default_factory=dict)
    spreads: set[str] = field(default_factory=set)
    first: str = ""
    yaml: bool = False
    panel: bool = False

    @property
    def table(self) -> bool:
        """Whether its form alone tells that it is one."""
        return (self.panel or self.yaml) and len(self.metrics) >= _FEWEST


class Blocks:
    """Collects blocks line by line.

    Args:
        step_key: the counter to take for the step, where a block has it.

    Attributes:
        ready: blocks that are whole.
    """

    def __init__(self, step_key: str | None = None) -> None:
        self.ready: list[Group] = []
        self._step_key = step_key
        self._block = _Block()
        self._sections: list[tuple[int, str]] = []
        self._step: int | None = None
        self._where: Where = "nowhere"
        self._under: dict[str, list[float]] = {}
        self._spreads: dict[str, list[float]] = {}  # what stood behind a `±`
        self._sure: set[str] = set()
        self._line = (0, "")
        self._lines: list[tuple[int, str]] = []
        self._count = 0
        self._unknown: dict[str, Sample] = {}  # by its first name, such lines so far
        self._early: dict[str, Sample] = {}  # before the first row: of samples if they come again
        self._heading = ""  # the name of its counter

    @property
    def open(self) -> bool:
        """Whether the next line may belong to a block, or end it."""
        return bool(self._block.metrics or self._block.yaml or self._sections)

    @property
    def holds(self) -> bool:
        """Whether anything would be given as soon as a row comes."""
        return self.open or bool(self._under or self.ready)

    def behind_a_row(self) -> Blocks:
        """What collects the same blocks behind a row, with nothing in it yet."""
        blocks = Blocks(self._step_key)
        blocks._where, blocks._heading = "after", self._heading
        return blocks

    def feed(self, text: str, number: int = 0) -> bool:
        """A line that is no row; whether it belongs to a block, or may head one."""
        if len(text) > labels.LONGEST:
            self._end()
            return False
        heading = heading_in(text)
        # A counter below the metrics of its block is no heading, unless others are.
        if heading is not None and (not self._block.metrics or self._where in _HEADED):
            self._heading, step, where = heading
            self._moved(step, where)
            return True
        return self.take(labels.labelled(text), number, text)

    def take(self, label: Labelled, number: int, text: str) -> bool:
        """The same of what a line holds that is not too long and no heading."""
        self._line = (number, text)
        if label.kind == "labels":
            return self._add(label)
        if label.kind == "section":
            return self._section(label)
        if label.kind == "rule":
            self._end()
            return True
        if label.kind == "text" and not self._block.yaml:
            self._end()
        return label.kind == "inner rule"

    def row_given(self, step: int | None) -> None:
        """A row of its own came: what follows belongs to it until a heading comes."""
        self._moved(step, "after")

    def headed(self, step: int) -> None:
        """A line told its step, and no metric that is known: it heads what follows."""
        self._moved(step, "heading")

    def finish(self) -> None:
        """The output ends."""
        self._moved(None, "nowhere")

    def _moved(self, step: int | None, where: Where) -> None:
        self._end()
        if where == "heading" and (self._step, self._where) == (step, where):
            return
        if where == "heading" and self._where == "nowhere" and step:
            self._step, self._where = step - 1, where  # what came before the first heading
        self._flush()
        self._step, self._where = step, where

    def _section(self, label: Labelled) -> bool:
        if label.indent == 0 and not label.section:  # `Result for …:` begins a block
            self._end()
            self._block.yaml, self._sections = True, []
            return True
        if not label.panel and not self._block.yaml:
            self._end()
            return False
        self._leave(label.indent)
        self._sections.append((label.indent, label.section))
        return True

    def _leave(self, indent: int) -> None:
        while self._sections and self._sections[-1][0] >= indent:
            self._sections.pop()

    def _add(self, label: Labelled) -> bool:
        if self._block.yaml and label.indent < 0:
            self._end()  # YAML has one name in a line
        prefix = ""
        if label.indent >= 0 and self._sections:
            self._leave(label.indent)
            inside = [name for _, name in self._sections]
            if _CONFIG.intersection(inside):
                return True
            prefix = "".join(f"{name}/" for name in inside)
        if not label.metrics and not label.counters:
            return self._block.yaml
        first = prefix + next(iter(label.metrics or label.counters))
        block = self._block
        plain = not (label.panel or block.panel or block.yaml)
        again = block.first == first or (plain and first in block.metrics)
        if again and not label.redrawn:
            yaml = block.yaml
            self._end()
            self._block.yaml = yaml
            block = self._block
        block.first = block.first or first
        block.panel |= label.panel
        if len(block.metrics) < _MOST_KEYS:
            self._put(block, label, prefix)
        return True

    def _put(self, block: _Block, label: Labelled, prefix: str) -> None:
        measures = label.measures
        if console_line.measures(label.metrics) if measures is None else measures:
            self._count += 1
            if len(self._lines) < _FEW:
                self._lines.append((self._line[0], bare(self._line[1]).text))
        elif label.metrics:
            name = prefix + next(iter(label.metrics))
            seen = self._unknown.get(name)
            if seen is not None:
                self._unknown[name] = seen[0] + 1, seen[1], seen[2]
            elif len(self._unknown) < _MOST_KEYS:
                number, text = self._line
                self._unknown[name] = 1, number, text
        for name, value in label.metrics.items():
            spread = name.removesuffix("_std") != name and name[:-4] in label.metrics
            known = prefix + name in block.metrics and prefix + name not in block.spreads
            if label.redrawn or not (known or (spread and prefix + name in block.metrics)):
                block.metrics[prefix + name] = value
                (block.spreads.add if spread else block.spreads.discard)(prefix + name)
        # In a sentence (`beta warm-up: step 2/20, beta=0.1`) a counter is not that of the block.
        if label.panel or block.yaml or not label.metrics:
            block.counters |= {prefix + name: value for name, value in label.counters.items()}
        for name in label.metrics:
            if label.panel or block.yaml or console_line.is_measurement(name):
                block.sure.add(prefix + name)

    def _end(self) -> None:
        """The block is whole."""
        block, self._block = self._block, _Block()
        self._sections = []
        if not block.metrics:
            return
        sure = {name: value for name, value in block.metrics.items() if name in block.sure}
        own = self._own_step(block)
        if own is not None:
            self._flush()
            name, step = own
            asked = self._step_key is not None  # then the step is kept under its own name, too
            counters = {key: v for key, v in block.counters.items() if asked or key != name}
            self._ready(Group({**counters, **block.metrics}, step, "own"))
            self._step, self._where = step, "after"
        elif self._where == "nowhere" and block.panel:
            if console_line.measures(sure):
                self._ready(Group({**block.counters, **sure}, None, "nowhere"))
        else:
            self._sure |= block.sure
            for name, value in {**block.counters, **block.metrics}.items():
                under = self._spreads if name in block.spreads else self._under
                values = under.setdefault(name, [])
                if len(values) < _MOST_VALUES:
                    values.append(value)

    def _own_step(self, block: _Block) -> tuple[str, int] | None:
        """The counter of a block that is its step, if no heading tells it better."""
        counters = dict(block.counters)
        if not block.table:
            if not console_line.measures(block.metrics):
                return None
            counters = {name: v for name, v in counters.items() if best_step_key([name])}
        fine = [name for name in counters if console_line.is_fine(name)]
        heading = [self._heading] if self._where == "heading" else []
        wanted = best_step_key(counters, self._step_key) if self._step_key else None
        best = wanted or best_step_key([*heading, *(fine or counters)])
        return (best, int(counters[best])) if best in counters else None

    def _flush(self) -> None:
        """All blocks of one step are whole."""
        # What is printed under its own name is not what stands behind a `±`.
        under, sure = {**self._spreads, **self._under}, self._sure
        self._under, self._spreads, self._sure = {}, {}, set()
        unknown, self._unknown = self._unknown, {}
        if not under:
            return
        samples = {name: it for name, it in unknown.items() if len(under.get(name, ())) > 1}
        if self._where == "nowhere":
            self._early |= samples
            self._ready(Group({}, None, "nowhere"))
            return
        # What is printed once is of the step; what comes again and again is of its samples.
        repeated = {name for name, values in under.items() if len(values) > 1}
        once = console_line.meanings(under.keys() - repeated)
        for name in [name for name in repeated if once & console_line.meanings([name])]:
            repeated.discard(name)
            del under[name]
        means = {name: sum(values) / len(values) for name, values in under.items()}
        metrics = {name: value for name, value in means.items() if name in sure}
        others = {name: value for name, value in means.items() if name not in sure}
        group = Group(metrics, self._step, self._where, others, frozenset(repeated))
        early = [self._early.pop(name) for name in samples if name in self._early]
        group.samples = _of_all([*early, *samples.values()])
        self._ready(group)

    def _ready(self, group: Group) -> None:
        group.lines, group.count = self._lines, self._count
        self._lines, self._count = [], 0
        self.ready.append(group)


def _of_all(lines: Sequence[Sample]) -> Sample:
    if not lines:
        return 0, 0, ""
    _, number, text = min(lines, key=lambda line: line[1])
    return sum(count for count, _, _ in lines), number, bare(text).text


def heading_in(text: str) -> tuple[str, int, Where] | None:
    """What a heading counts, its count, and whether these are steps or something larger."""
    match = _HEADING.search(text) if len(text) < 200 else None
    if match is None or len(_WORD.findall(text[: match.start()])) > _MOST_WORDS:
        return None
    name = match["name"]
    return name, int(match["at"]), "coarse" if name.lower() in _COARSE else "heading"
