"""Shapes in which a row of metrics is several lines, or many rows are one table."""

from __future__ import annotations

import pprint
from random import Random

from tests.importers.shapes_lines import ANY, SHAPES, WORDY, Block, Row, rows_of, shape
from tests.importers.tables import Cell, Manner, Table

__all__ = ["SHAPES"]

_LINED = ANY - {"first"}
_PANEL = Manner(("plain", "slashed", "numbered", "unknown", "dashed"))


def _framed(rows: list[tuple[str, str]], left: str = "| ") -> Block:
    wide = max(len(key) for key, _ in rows)
    tall = max(len(text) for _, text in rows)
    rule = "-" * (wide + tall + 7)
    return [rule, *(f"{left}{key:<{wide}} | {text:<{tall}} |" for key, text in rows), rule]


@shape(_PANEL, _LINED)
def panel(table: Table, random: Random) -> list[Block]:
    """`| loss | 0.5 |` between rules, the step among the names (baselines)."""
    step = random.choice(["total_timesteps", "time/total_timesteps", "step", "total/steps"])
    return [
        _framed([*((key, cell.number) for key, cell in row.items()), (step, str(n))])
        for n, row in rows_of(table)
    ]


@shape(Manner(("plain", "unknown", "numbered")), _LINED)
def panel_with_sections(table: Table, random: Random) -> list[Block]:
    """Stable-Baselines3: `| train/ | |` over `|    loss | 0.5 |`."""
    blocks = []
    for n, row in rows_of(table):
        rows = [("time/", ""), ("   total_timesteps", str(n)), ("train/", "")]
        blocks.append(_framed([*rows, *((f"   {key}", c.number) for key, c in row.items())]))
    return blocks


@shape(_PANEL, _LINED)
def barred_lines(table: Table, random: Random) -> list[Block]:
    """`2020-12-08 21:40:50.116  | loss/Average   0.5` with the iteration among them (rllab)."""
    key, stamp = (
        random.choice(["Iteration", "Diagnostics/Iteration", "Itr"]),
        "2020-12-08 21:40:50.116 ",
    )
    blocks = []
    for n, row in rows_of(table):
        rows = [(key, str(n)), *((name, cell.number) for name, cell in row.items())]
        wide = max(len(name) for name, _ in rows)
        lines = [f"{stamp} | {name:<{wide}}  {text}" for name, text in rows]
        blocks.append([*lines, f"{stamp} {'-' * wide}  {'-' * 10}"])
    return blocks


@shape(_PANEL, _LINED)
def simple_table(table: Table, random: Random) -> list[Block]:
    """Names and numbers between rules of dashes (garage with dowel)."""
    key = random.choice(["Iteration", "Evaluation/Iteration", "TotalEnvSteps", "step"])
    blocks = []
    for n, row in rows_of(table):
        rows = [*((name, cell.number) for name, cell in row.items()), (key, str(n))]
        wide = max(len(name) for name, _ in rows)
        rule = f"{'-' * wide}  {'-' * max(len(text) for _, text in rows)}"
        blocks.append([rule, *(f"{name:<{wide}}  {text}" for name, text in rows), rule])
    return blocks


@shape(_PANEL, _LINED)
def grid(table: Table, random: Random) -> list[Block]:
    """`│ key │ 0.5 │ key │ 0.5 │` in a box, under a line with the step (AReaL)."""
    across, most = random.choice([1, 2, 3, 4]), table.steps[-1] + 100
    blocks = []
    for n, row in rows_of(table):
        pairs = list(row.items())
        wide = max(len(key) for key, _ in pairs) + 2
        tall = max(len(cell.number) for _, cell in pairs) + 2
        lines = []
        for at in range(0, len(pairs), across):
            some = pairs[at : at + across]
            cells = [f" {key:<{wide - 1}}│ {cell.number:<{tall - 1}}" for key, cell in some]
            cells += [f"{'':{wide}}│{'':{tall}}"] * (across - len(some))
            lines.append("│" + "│".join(cells) + "│")
        rule = ("─" * wide + "┼" + "─" * tall + "┼") * across
        head = f"Epoch 1/10 Step {n}/{most} Train step {n}/{most} done."
        blocks.append([head, f"╒{rule[:-1]}╕", *lines, f"╘{rule[:-1]}╛"])
    return blocks


@shape(Manner(("plain", "slashed", "spaced", "unknown"), units=True), _LINED)
def rich_table(table: Table, random: Random) -> list[Block]:
    """A table of rich, one per row: `┃ Metric ┃ Value ┃`, its title with the step."""
    blocks = []
    for n, row in rows_of(table):
        wide = max(6, *(len(key) for key in row))
        tall = max(5, *(len(cell.text) for cell in row.values()))
        lines = [f"│ {key:<{wide}} │ {cell.text:>{tall}} │" for key, cell in row.items()]
        across = ("━" * (wide + 2), "━" * (tall + 2))
        blocks.append(
            [
                f"Step {n}".center(wide + tall + 7),
                f"┏{across[0]}┳{across[1]}┓",
                f"┃ {'Metric':<{wide}} ┃ {'Value':>{tall}} ┃",
                f"┡{across[0]}╇{across[1]}┩",
                *lines,
                f"└{'─' * (wide + 2)}┴{'─' * (tall + 2)}┘",
            ]
        )
    return blocks


@shape(_PANEL, _LINED)
def equals_panel(table: Table, random: Random) -> list[Block]:
    """`│loss=0.5     │kl=0.1     │` in three columns under `Global Step: 3/500` (RLinf)."""
    most, wide = table.steps[-1] + 100, 52
    blocks = []
    for n, row in rows_of(table):
        shown = [f"{key}={cell.number}" for key, cell in row.items()]
        lines = []
        for at in range(0, len(shown), 3):
            cells = [*shown[at : at + 3], "", ""][:3]
            lines.append("│" + "│".join(f"{text:<{wide}}" for text in cells) + "│")
        inner = 3 * wide + 2
        blocks.append(
            [
                f"╭{'─' * inner}╮",
                f"├{' Metric Table ':─^{inner}}┤",
                f"│ Global Step: {n:4d}/{most} │ Progress: ██░░".ljust(inner) + " │",
                f"├{' Training ':─^{inner}}┤",
                f"│{' ' * inner}│",
                *lines,
                f"╰{'─' * inner}╯",
            ]
        )
    return blocks


_HEADS = ("step", "Step", "iteration", "global_step")


def _cells(table: Table, random: Random) -> list[list[str]]:
    head = [random.choice(_HEADS), *table.rows[0]]
    rows = [[str(n), *(cell.number for cell in row.values())] for n, row in rows_of(table)]
    return [head, *rows]


@shape(Manner(("plain", "slashed", "spaced", "unknown")), frozenset({"prefix", "colour", "wrap"}))
def markdown_table(table: Table, random: Random) -> list[Block]:
    """`| step | loss |`, `|---|---|`, `| 3 | 0.5 |`."""
    head, *rows = ["| " + " | ".join(cells) + " |" for cells in _cells(table, random)]
    return [[head, "|" + "---|" * (len(table.rows[0]) + 1)], *([row] for row in rows)]


@shape(Manner(("plain", "slashed", "unknown")), frozenset({"prefix", "noise"}))
def fixed_width_table(table: Table, random: Random) -> list[Block]:
    """A header and rows of fixed width (fastai)."""
    cells = _cells(table, random)
    wide = max(len(text) for row in cells for text in row) + 2
    left = random.random() < 0.5
    return [
        ["".join(f"{text:<{wide}}" if left else f"{text:>{wide}}" for text in row)] for row in cells
    ]


@shape(Manner(("plain", "slashed", "unknown", "spaced")), frozenset({"prefix"}))
def tab_table(table: Table, random: Random) -> list[Block]:
    """A header and rows with tabs between."""
    return [["\t".join(row)] for row in _cells(table, random)]


@shape(Manner(("plain", "slashed", "spaced", "unknown")), frozenset({"noise"}))
def html_table(table: Table, random: Random) -> list[Block]:
    """`<tr><th>Step</th>…`: the table of a notebook, in lines or all in one."""
    head, *rows = _cells(table, random)
    lines = ["<table>", "<tr>" + "".join(f"<th>{text}</th>" for text in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{text}</td>" for text in row) + "</tr>" for row in rows]
    lines.append("</table>")
    return [["".join(lines)] if random.random() < 0.3 else lines]


def _nested(row: Row) -> list[str]:
    """A row as YAML: what stands before a slash is a level."""
    lines, above = [], ""
    for key, cell in sorted(row.items(), key=lambda item: (item[0].rpartition("/")[0], item[0])):
        group, _, name = key.rpartition("/")
        if group and group != above:
            lines.append(f"  {group}:")
        above = group
        lines.append(f"{'    ' if group else '  '}{name}: {cell.number}")
    return lines


@shape(Manner(("plain", "unknown", "numbered")), ANY - {"first"})
def yaml_block(table: Table, random: Random) -> list[Block]:
    """`Result for PPO:` and its numbers as YAML (RLlib)."""
    return [
        [
            "Result for PPO_env_0:",
            "  date: 2023-01-02_10-11-12",
            "  done: false",
            *_nested(row),
            f"  training_iteration: {n}",
            "  ",
        ]
        for n, row in rows_of(table)
    ]


_HEADINGS = (
    "Step {n}/{most}",
    "=== METRICS STEP {n} ===",
    "                            Learning iteration {n}/{most}",
    "========== Step {n} ==========",
    "[Step {n}]",
    "Step {n}:",
)
_UNDER = Manner(WORDY, units=True, grouped=True, spread=True)


@shape(_UNDER)
def lines_under_heading(table: Table, random: Random) -> list[Block]:
    """`Step 3/90`, then `  loss: 0.5` on a line of its own for each name."""
    most = table.steps[-1] + 90
    heading = random.choice(_HEADINGS)
    lead, after = random.choice(
        [("  ", ": "), ("  • ", ": "), ("- ", ": "), ("\t", " = "), ("", ": ")]
    )
    return [
        [
            heading.format(n=n, most=most),
            *(f"{lead}{key}{after}{cell.text}" for key, cell in row.items()),
        ]
        for n, row in rows_of(table)
    ]


@shape(Manner(("plain", "spaced", "unknown"), units=True, least=2))
def lines_after_step(table: Table, random: Random) -> list[Block]:
    """`step: 3|loss: 0.5`, then what belongs to it on the next lines (DeepSpeed-Chat)."""
    blocks = []
    for n, row in rows_of(table):
        (key, cell), *others = row.items()
        first = f"epoch: 0|step: {n}|{key}: {cell.text}"
        blocks.append([first, *(f"{name}: {other.text}" for name, other in others), "-" * 60])
    return blocks


@shape(Manner(("plain", "slashed", "numbered", "unknown"), units=False), ANY - {"first"})
def slashed_under_heading(table: Table, random: Random) -> list[Block]:
    """`-----[Step 3]-----`, then `loss 0.5 / train/kl 0.1` (Dreamer)."""
    return [
        [
            f"{'-' * 20}[Step {n}]{'-' * 20}",
            " / ".join(f"{key} {cell.number}" for key, cell in row.items()),
        ]
        for n, row in rows_of(table)
    ]


@shape(Manner(("plain", "slashed", "numbered", "unknown"), least=2))
def printed_dictionary(table: Table, random: Random) -> list[Block]:
    """A dict that `pprint` broke over lines, behind `Step 3:` (SkyRL) or with its step."""
    quoted, inside = random.random() < 0.5, random.random() < 0.5
    blocks = []
    for n, row in rows_of(table):
        shown = {key: repr(cell.number) if quoted else cell.number for key, cell in row.items()}
        shown |= {"step": str(n)} if inside else {}
        text = pprint.pformat({key: _Bare(value) for key, value in shown.items()}, width=40)
        blocks.append([*([] if inside else [f"Step {n}: "]), *text.split("\n")])
    return blocks


class _Bare:
    """A text that shows itself without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


@shape(Manner(("plain", "unknown", "numbered")), _LINED)
def grouped_panel(table: Table, random: Random) -> list[Block]:
    """`│ loss  policy: 0.5 | total: 0.1 │`: a group per line in a box (open-instruct)."""
    blocks = []
    for n, row in rows_of(table):
        text = " | ".join(f"{key}: {cell.number}" for key, cell in row.items())
        inner = max(len(text) + 14, 40)
        lines = [
            f"│  {'other':<8} {text:<{inner - 11}}│",
            f"│  {'time':<8} {f'training_step: {n}':<{inner - 11}}│",
        ]
        blocks.append([f"╭{' Metrics ':─^{inner}}╮", *lines, f"╰{'─' * inner}╯"])
    return blocks


def cells_in(table: Table) -> list[Cell]:
    """Every number of a table."""
    return [cell for row in table.rows for cell in row.values()]
