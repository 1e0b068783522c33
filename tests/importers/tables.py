"""Tables of numbers to be rendered: names as frameworks log them, numbers as they print them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from random import Random

from rlprobe import naming

# What frameworks print, by the shape of the name.
WORDS = {
    "plain": "loss grad_norm reward kl entropy policy_loss value_loss learning_rate reward_std",
    "slashed": "actor/pg_loss critic/score/mean train/loss objective/kl rollout/ep_rew_mean "
    "completions/mean_length rewards/format/mean response_length/mean losses/value_loss "
    "perf/throughput timing_s/step ppo_actor/update/entropy/avg policy/grad_norm",
    "numbered": "pass@8 acc@1 q1_loss top5_error rewards/fmt2/mean kl_0 reward_v2 p99_length",
    "unknown": "zorp aux/quux_ratio my_metric frobnication head_07/gate beta_hat n_tools mfu_x",
    "dotted": "decode.loss_ce model.norm opt.scale sched.temp",
    "dashed": "grad-norm kl-penalty top-k-mass",
    "spaced": "lm loss|grad norm|Train loss|Mean Reward|Std of Reward|Grad. Norm|Mismatch KL|"
    "policy loss|value loss|Peak Mem.|forward time|average reward score|Learning Rate",
    "bracketed": "memory/max_active (GiB)|train_speed(iter/s)|throughput (TFLOP/s)|time (ms)",
}
POOLS = {
    kind: names.split("|") if kind in ("spaced", "bracketed") else names.split()
    for kind, names in WORDS.items()
}
KNOWN = ("loss", "grad_norm", "reward", "entropy", "policy_loss", "train/loss", "actor/pg_loss")
# Units that stand behind a number, and what a number with it is multiplied by.
UNITS = {
    "s": 1.0,
    " s": 1.0,
    "ms": 1e-3,
    " ms": 1e-3,
    "%": 1e-2,
    " GB": 1.0,
    " tokens/s": 1.0,
    " it/s": 1.0,
    "GiB": 1.0,
}


@dataclass(frozen=True)
class Cell:
    """One number: as it is printed, and what it is in the metric's unit.

    Attributes:
        number: without unit and spread.
        text: whole.
        spread: what stands behind a `±`.
    """

    number: str
    text: str
    value: float
    spread: float | None = None


@dataclass(frozen=True)
class Table:
    """Numbers by name and step.

    Attributes:
        rows: one per step, the same names in each.
    """

    steps: list[int]
    rows: list[dict[str, Cell]]


@dataclass(frozen=True)
class Manner:
    """Which names and numbers a shape can carry at all."""

    kinds: tuple[str, ...] = ("plain", "slashed", "numbered", "unknown", "dotted", "dashed")
    units: bool = False
    grouped: bool = False
    spread: bool = False
    json: bool = False
    least: int = 1  # names in a row, at least


def table(random: Random, manner: Manner) -> Table:
    """A table of one to six names and two to six steps; now and then of many."""
    names = _names(random, manner, random.randint(manner.least, 6))
    every = random.choice([1, 1, 1, 2, 5, 10, 50, 100])
    first = random.choice([0, 1, every, every * random.randint(1, 40)])
    count = random.randint(40, 120) if random.random() < 0.03 else random.randint(2, 6)
    steps = [first + every * place for place in range(count)]
    columns = {}
    for name in names:
        # `reward: 0.5 ± 0.1` beside `reward_std: 3 ms` has two spreads: nobody can tell which.
        spread = manner.spread and f"{name}_std" not in names
        columns[name] = _column(random, replace(manner, spread=spread), len(steps))
    return Table(steps, [{name: columns[name][at] for name in names} for at in range(len(steps))])


def _names(random: Random, manner: Manner, count: int) -> list[str]:
    """One known name and others, of which no two mean the same to anyone."""
    known = [name for name in KNOWN if "/" not in name or "slashed" in manner.kinds]
    chosen = [random.choice(known)]
    taken = set(meanings(chosen[0]))
    for _ in range(count - 1):
        name = random.choice(POOLS[random.choice(manner.kinds)])
        if taken.isdisjoint(meanings(name)):
            chosen.append(name)
            taken |= meanings(name)
    random.shuffle(chosen)
    return chosen


@functools.cache
def meanings(name: str) -> frozenset[str]:
    """What a name may become, by any framework's vocabulary."""
    known = {aliases.canonical(name) for aliases in naming.every().values()}
    return frozenset({name, *(each for each in known if each)})


def _column(random: Random, manner: Manner, count: int) -> list[Cell]:
    scale = 10 ** random.uniform(-8, 8) if random.random() < 0.3 else 10 ** random.uniform(-2, 3)
    style = random.choice(["fixed", "fixed", "fixed", "exponent", "short", "whole", "repr"])
    digits = random.randint(1, 8)
    unit = random.choice(list(UNITS)) if manner.units and random.random() < 0.3 else ""
    grouped = manner.grouped and random.random() < 0.15
    spread = manner.spread and random.random() < 0.2
    signed = random.random() < 0.3 and not unit
    cells = []
    for _ in range(count):
        value = random.uniform(0.1, 1.0) * scale * (-1 if signed and random.random() < 0.5 else 1)
        number = _printed(value, style, digits, random, manner)
        if grouped and "e" not in number and number[-1].isdigit():
            whole, _, part = number.partition(".")
            number = f"{int(whole):,}" + (f".{part}" if part else "")
        cells.append(_cell(number, unit, random if spread else None))
    return cells


def _printed(value: float, style: str, digits: int, random: Random, manner: Manner) -> str:
    odd = random.random()
    if odd < 0.02:
        return "NaN" if manner.json else "nan"
    if odd < 0.03:
        return "Infinity" if manner.json else random.choice(["inf", "-inf"])
    if style == "fixed":
        return f"{value:.{digits}f}"
    if style == "exponent":
        return f"{value:.{digits}e}"
    if style == "whole":
        return str(round(value))
    return f"{value:.{digits}g}" if style == "short" else repr(value)


def _cell(number: str, unit: str, spreads: Random | None) -> Cell:
    value = float(number.replace(",", "")) * UNITS.get(unit, 1.0)
    if not number[-1].isdigit():  # no unit beside nan
        return Cell(number, number, value)
    if spreads is None:
        return Cell(number, number + unit, value)
    spread = f"{spreads.uniform(0, 2):.4f}"
    return Cell(number, f"{number} ± {spread}", float(number.replace(",", "")), float(spread))
