"""Shapes in which a row of metrics is one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.importers.tables import POOLS, Cell, Manner, Table

Row = dict[str, Cell]
Block = list[str]  # the lines of one row
Render = Callable[[Table, Random], list[Block]]


@dataclass(frozen=True)
class Shape:
    """A way to print a table.

    Attributes:
        manner: the names and numbers that it can carry.
        carries: which decorations make sense: `prefix`, `first` (a prefix before the first line of
            a row only), `noise`, `wrap`, `colour`, `return` (carriage returns between the lines).
    """

    name: str
    render: Render
    manner: Manner
    carries: frozenset[str]


ANY = frozenset({"prefix", "first", "noise", "wrap", "colour"})
SHAPES: dict[str, Shape] = {}
WORDY = tuple(POOLS)


def shape(
    manner: Manner | None = None, carries: frozenset[str] = ANY
) -> Callable[[Render], Render]:
    """Enter a way to print into `SHAPES`."""

    def enter(render: Render) -> Render:
        name = render.__name__
        SHAPES[name] = Shape(name, render, manner or Manner(), carries)
        return render

    return enter


def rows_of(table: Table) -> list[tuple[int, Row]]:
    """Steps with their rows."""
    return list(zip(table.steps, table.rows, strict=True))


_STEPS = (
    "step: {n}",
    "step {n}",
    "step={n}",
    "Step {n}",
    "Step: {n}",
    "step {n}/{most}",
    "Step {n:5d}/{most}",
    "iter {n}",
    "iteration {n}",
    "global_step={n}",
    "global step {n}",
    "train step: {n}",
    "step {n:06d}",
)


def _step(random: Random, last: int) -> Callable[[int], str]:
    """How the lines of one log tell their step."""
    most, form = last + random.randint(0, 5000), random.choice(_STEPS)
    return lambda n: form.format(n=n, most=most)


def _joined(table: Table, random: Random, between: str, after: str) -> list[Block]:
    step = _step(random, table.steps[-1])
    lead = random.choice([between, between, ": ", " | "])
    return [
        [step(n) + lead + between.join(f"{key}{after}{cell.text}" for key, cell in row.items())]
        for n, row in rows_of(table)
    ]


@shape(Manner(WORDY, units=True, spread=True))
def colon_comma(table: Table, random: Random) -> list[Block]:
    """`step: 3, loss: 0.5, lr: 1e-4`."""
    return _joined(table, random, ", ", ": ")


@shape(Manner(WORDY, units=True, grouped=True))
def colon_semicolon(table: Table, random: Random) -> list[Block]:
    """`step: 3; loss: 0.5; lr: 1e-4`."""
    return _joined(table, random, "; ", ": ")


@shape(Manner(WORDY, units=True, grouped=True))
def colon_tab(table: Table, random: Random) -> list[Block]:
    """`step: 3<TAB>loss: 0.5<TAB>lr: 1e-4`."""
    return _joined(table, random, "\t", ": ")


@shape(Manner(units=True))
def colon_blank(table: Table, random: Random) -> list[Block]:
    """`step: 3 loss:0.5 lr:1e-4` (torchtune)."""
    return _joined(table, random, " ", random.choice([":", ": "]))


@shape(Manner(WORDY))
def colon_blanks(table: Table, random: Random) -> list[Block]:
    """`Iter [3/90]  lr: 1e-4  loss: 0.5` with two blanks between (mmengine)."""
    most = table.steps[-1] + 100
    return [
        [f"Iter(train) [{n:5d}/{most}]  " + "  ".join(f"{k}: {c.text}" for k, c in row.items())]
        for n, row in rows_of(table)
    ]


@shape(Manner(units=True))
def equals(table: Table, random: Random) -> list[Block]:
    """`step=3, loss=0.5, lr=1e-4`."""
    return _joined(
        table, random, random.choice([", ", " ", "; ", ","]), random.choice(["=", " = "])
    )


@shape(Manner(("plain", "slashed", "numbered", "unknown", "dotted", "dashed")))
def verl(table: Table, random: Random) -> list[Block]:
    """`step:3 - actor/pg_loss:0.5 - actor/lr:1e-06`."""
    wrapped = random.random() < 0.3
    blocks = []
    for n, row in rows_of(table):
        shown = [
            f"{key}:np.float64({cell.number})" if wrapped else f"{key}:{cell.number}"
            for key, cell in row.items()
        ]
        blocks.append([f"step:{n} - " + " - ".join(shown)])
    return blocks


@shape(Manner(("plain", "slashed", "numbered", "unknown", "spaced"), units=True))
def name_blank_number(table: Table, random: Random) -> list[Block]:
    """`step 3, loss 0.5, lr 1e-4` (MLX)."""
    return _joined(table, random, random.choice([", ", " | "]), " ")


@shape(Manner(WORDY, units=True, grouped=True))
def piped(table: Table, random: Random) -> list[Block]:
    """`step 3 | loss: 0.5 | lr: 1e-4 |` (nanochat, torchtitan)."""
    step, end = _step(random, table.steps[-1]), random.choice(["", " |"])
    bar = random.choice([" | ", "|", "| "])
    return [
        [step(n) + bar + bar.join(f"{key}: {cell.text}" for key, cell in row.items()) + end]
        for n, row in rows_of(table)
    ]


@shape(Manner(("plain", "unknown", "spaced"), units=True))
def piped_blank(table: Table, random: Random) -> list[Block]:
    """`SUCCESS Step 3 |   41.2s | Loss 0.5 | Grad. Norm 0.1` (prime-rl)."""
    return [
        [f"SUCCESS Step {n} | " + " | ".join(f"{key} {cell.text}" for key, cell in row.items())]
        for n, row in rows_of(table)
    ]


@shape(Manner(("plain", "slashed", "spaced", "bracketed", "unknown")))
def megatron(table: Table, random: Random) -> list[Block]:
    """` iteration        3/   500 | lm loss: 1.0E+00 | grad norm: 0.5 |`."""
    most = table.steps[-1] + random.randint(1, 5000)
    return [
        [
            f" iteration {n:8d}/{most:8d} | "
            + " | ".join(f"{key}: {cell.number}" for key, cell in row.items())
            + " |"
        ]
        for n, row in rows_of(table)
    ]


@shape(Manner(("spaced", "plain")))
def sentences(table: Table, random: Random) -> list[Block]:
    """`Step: 3. Mean Reward: 0.5. Std of Reward: 0.1. Training.` (ML-Agents)."""
    end = random.choice(["", " Training."])
    return [
        [f"Step: {n}. " + " ".join(f"{key}: {cell.number}." for key, cell in row.items()) + end]
        for n, row in rows_of(table)
    ]


def _quoted(cell: Cell, how: str) -> str:
    if how == "quoted":
        return f"'{cell.number}'"
    if how == "numpy":
        return f"np.float64({cell.number})"
    if how == "tensor":
        return f"tensor({cell.number}, device='cuda:0')"
    return cell.number


def _pairs(row: Row, how: str, quote: str = "'") -> list[str]:
    return [f"{quote}{key}{quote}: {_quoted(cell, how)}" for key, cell in row.items()]


_DICT = Manner(("plain", "slashed", "numbered", "unknown", "dotted", "dashed", "bracketed"))


@shape(_DICT)
def dictionary(table: Table, random: Random) -> list[Block]:
    """`{'loss': 0.5, 'step': 3}`: floats, quoted, of numpy or of torch; the step first or last."""
    how = random.choice(["float", "float", "quoted", "numpy", "tensor"])
    key, first = random.choice(["step", "global_step", "train/global_step"]), random.random() < 0.5
    blocks = []
    for n, row in rows_of(table):
        pairs, step = _pairs(row, how), f"'{key}': {n}"
        blocks.append(["{" + ", ".join([step, *pairs] if first else [*pairs, step]) + "}"])
    return blocks


@shape(_DICT)
def dictionary_behind_step(table: Table, random: Random) -> list[Block]:
    """`Global step 3: {'loss': 0.5}` (OpenRLHF, slime)."""
    name, how = (
        random.choice(["Global step", "step", "Step", "rollout"]),
        random.choice(["f", "numpy"]),
    )
    return [[f"{name} {n}: {{{', '.join(_pairs(row, how))}}}"] for n, row in rows_of(table)]


@shape(_DICT)
def dictionary_without_braces(table: Table, random: Random) -> list[Block]:
    """`'loss': 0.5, 'epoch': 0.1, 'global_step/max_steps': '3/500'` as it is copied from a page."""
    how, most = random.choice(["float", "quoted"]), table.steps[-1] + 100
    return [
        [", ".join([*_pairs(row, how), f"'global_step/max_steps': '{n}/{most}'"])]
        for n, row in rows_of(table)
    ]


@shape(Manner(("plain", "slashed", "numbered", "unknown", "spaced"), json=True))
def json_line(table: Table, random: Random) -> list[Block]:
    """`{"step": 3, "loss": 0.5}` between other lines."""
    lead = random.choice(["", "metrics: ", "INFO "])
    return [
        [lead + "{" + ", ".join([f'"step": {n}', *_json(row)]) + "}"] for n, row in rows_of(table)
    ]


def _json(row: Row) -> list[str]:
    return [f"{json.dumps(key)}: {cell.number}" for key, cell in row.items()]


@shape(Manner(("slashed", "plain", "numbered", "unknown")), ANY - {"first"})
def tag_value_step(table: Table, random: Random) -> list[Block]:
    """`losses/value_loss 0.5 2048`: a scalar of TensorBoard as it is printed."""
    return [[f"{key} {cell.number} {n}" for key, cell in row.items()] for n, row in rows_of(table)]


_BAR = frozenset({"noise", "colour", "return"})


def _speed(random: Random) -> str:
    return (
        f"[00:{random.randint(10, 59)}<03:{random.randint(10, 59)}, {random.uniform(1, 9):5.2f}it/s"
    )


@shape(Manner(("plain", "unknown", "numbered", "slashed")), _BAR)
def bar_postfix(table: Table, random: Random) -> list[Block]:
    """`Training:  30%|███   | 3/10 [00:10<00:20,  1.2it/s, loss=0.5, lr=1e-4]` (tqdm)."""
    desc, most = random.choice(["", "Training: ", "train:"]), table.steps[-1] + 10
    return [
        [
            f"{desc}{100 * n // most:3d}%|███▏      | {n}/{most} {_speed(random)}, "
            + ", ".join(f"{key}={cell.number}" for key, cell in row.items())
            + "]"
        ]
        for n, row in rows_of(table)
    ]


@shape(_DICT, frozenset({"noise", "return"}))
def dictionary_at_bar(table: Table, random: Random) -> list[Block]:
    """A bar, then the dict of the step at which it stands (the Trainer's `tqdm.write`)."""
    most, how = table.steps[-1] + 10, random.choice(["float", "quoted"])
    first = table.steps[0] or table.steps[1]
    table.steps[:] = [first + n - table.steps[0] for n in table.steps]  # no dict at 0
    blocks = []
    for n, row in rows_of(table):
        bar = f"{100 * n // most:3d}%|███▏      | {n}/{most} {_speed(random)}]"
        blocks.append([bar, "{" + ", ".join([*_pairs(row, how), f"'epoch': {n / most:.2f}"]) + "}"])
    return blocks


@shape(Manner(("plain", "unknown", "numbered")), _BAR)
def bar_before(table: Table, random: Random) -> list[Block]:
    """`[loss: 0.5, kl: 0.1]:  30%|███  | 3/10 [00:10<00:20, 1.2it/s]`: a description of metrics."""
    most = table.steps[-1] + 10
    return [
        [
            f"[{', '.join(f'{key}: {cell.number}' for key, cell in row.items())}]: "
            f"{100 * n // most:3d}%|███▏      | {n}/{most} {_speed(random)}]"
        ]
        for n, row in rows_of(table)
    ]


@shape(Manner(("plain", "unknown")), frozenset({"noise"}))
def keras_bar(table: Table, random: Random) -> list[Block]:
    """`Epoch 3/9`, then ` 938/938 [====] - 5s 5ms/step - loss: 0.5 - accuracy: 0.8`."""
    bar, most = random.choice(["[==============================]", "━━━━━━━━━━━━━━━━━━━━"]), 938
    blocks = []
    for n, row in rows_of(table):
        shown = " - ".join(f"{key}: {cell.number}" for key, cell in row.items())
        blocks.append(
            [
                f"Epoch {n}/{table.steps[-1] + 3}",
                f"{most}/{most} {bar} - {random.randint(1, 9)}s {n % 9 + 1}ms/step - {shown}",
            ]
        )
    return blocks


@shape(Manner(("plain", "unknown", "slashed")), _BAR)
def lightning_bar(table: Table, random: Random) -> list[Block]:
    """`Epoch 0:  30%|███  | 3/10 [00:10<00:00, 4.5it/s, v_num=0, loss=0.5]`."""
    most = table.steps[-1] + 10
    return [
        [
            f"Epoch 0: {100 * n // most:3d}%|██████▏   | {n}/{most} {_speed(random)}, v_num=3, "
            + ", ".join(f"{key}={cell.number}" for key, cell in row.items())
            + "]"
        ]
        for n, row in rows_of(table)
    ]
