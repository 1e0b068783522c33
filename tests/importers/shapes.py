"""Logs of a known table of numbers, in every shape, as terminals and people leave them behind."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.importers import shapes_blocks, tables
from tests.importers.shapes_lines import SHAPES, Block, Shape

__all__ = ["SHAPES", "Log", "shapes_blocks"]

_NOISE = (
    "",
    "2024-05-01 10:11:12,345 INFO Saving checkpoint to /data/run-7/checkpoint-200",
    "2024-05-01 10:11:12 [WARNING] slow data loader, see https://example.com/a?b=3",
    "/usr/lib/python3.11/site-packages/torch/utils/checkpoint.py:87: UserWarning: None of the "
    "inputs have requires_grad=True",
    "The answer is 42. So we add 3 and 4 to get 7, and then 7 * 6 = 42.",
    "<think>If x is 12 then y must be 5, since 12 + 5 = 17.</think> <answer>17</answer>",
    "Loading checkpoint shards: done",
    "(WorkerDict pid=4711) WARNING:2024-05-01 10:11:12,345:waiting for server",
    "[2024-05-01 10:11:12,345] [INFO] [comm.py:652:init_distributed] cdb=None",
    "*** generation finished ***",
    "INFO:root:uploading artifacts",
    "Question: A train leaves at 9:30 and travels 120 miles in 2 hours. How fast is it?",
)
_EVERY = ("(TaskRunner pid=81723) ", "[rank0]: ", "[rank0]:", "> ", "0: ", "[default0]:")
_FIRST = (
    "2024-05-01 10:11:12,345 INFO ",
    "2024-05-01 10:11:12 - trainer - INFO - ",
    "INFO:trainer:",
    "[2024-05-01 10:11:12] ",
    "[INFO|2024-05-01 10:11:12] train.py:143 >> ",
    "10:11:12 ",
    "INFO 05-01 10:11:12 [loggers.py:80] ",
    "train | ",
)


@dataclass(frozen=True)
class Log:
    """A log, and what is in it.

    Attributes:
        decorations: what was done to the plain rendering: `prefix`, `noise`, `wrap`, …
    """

    shape: str
    text: str
    table: tables.Table
    decorations: tuple[str, ...]


def log(random: Random, name: str | None = None) -> Log:
    """A random table in a shape, decorated at random."""
    shape = SHAPES[name or random.choice(sorted(SHAPES))]
    table = tables.table(random, shape.manner)
    blocks = shape.render(table, random)
    done: list[str] = []
    blocks = _prefixed(blocks, shape, random, done)
    blocks = _with_noise(blocks, shape, random, done)
    lines = [line for block in blocks for line in block]
    lines = _coloured(lines, shape, random, done)
    lines = _cut(lines, shape, random, done)
    end = random.choice(["\n", "\n", "\n", "\r\n", "\r" if "return" in shape.carries else "\n"])
    done += [{"\r\n": "crlf", "\r": "return"}[end]] if end != "\n" else []
    return Log(shape.name, end.join(lines) + random.choice([end, ""]), table, tuple(done))


def plain(random: Random, name: str) -> Log:
    """A random table in a shape, and nothing else."""
    shape = SHAPES[name]
    table = tables.table(random, shape.manner)
    lines = [line for block in shape.render(table, random) for line in block]
    return Log(name, "\n".join(lines) + "\n", table, ())


def _prefixed(blocks: list[Block], shape: Shape, random: Random, done: list[str]) -> list[Block]:
    if "first" in shape.carries and random.random() < 0.25:
        done.append("first")
        lead = random.choice(_FIRST)
        blocks = [[lead + block[0], *block[1:]] for block in blocks]
    single = all(len(block) == 1 for block in blocks) and "table" not in shape.name
    if "prefix" in shape.carries and single and random.random() < 0.08:
        done.append("ranks")  # every rank prints the same
        return [
            [f"[rank{rank}]: {block[0]}"] for block in blocks for rank in random.sample(range(4), 4)
        ]
    if "prefix" in shape.carries and random.random() < 0.2:
        done.append("prefix")
        lead = random.choice(_EVERY)
        blocks = [[lead + line for line in block] for block in blocks]
    return blocks


def _with_noise(blocks: list[Block], shape: Shape, random: Random, done: list[str]) -> list[Block]:
    if "noise" not in shape.carries or random.random() < 0.5:
        return blocks
    done.append("noise")
    mixed: list[Block] = []
    for block in blocks:
        mixed += [[random.choice(_NOISE)] for _ in range(random.randint(0, 3))]
        mixed.append(block)
    return mixed


def _coloured(lines: list[str], shape: Shape, random: Random, done: list[str]) -> list[str]:
    if "colour" not in shape.carries or random.random() < 0.9:
        return lines
    done.append("colour")
    if random.random() < 0.5:
        return [f"\x1b[36m{line}\x1b[0m" for line in lines]
    return [
        line.replace(": ", ": \x1b[1;32m", 1) + "\x1b[0m" if ": " in line else line
        for line in lines
    ]


def _cut(lines: list[str], shape: Shape, random: Random, done: list[str]) -> list[str]:
    """Lines as a terminal breaks them: at its width, wherever that is."""
    if "wrap" not in shape.carries or "colour" in done or random.random() < 0.75:
        return lines
    done.append("wrap")
    width, stripped = random.randint(40, 200), random.random() < 0.5
    pieces = [line[at : at + width] for line in lines for at in range(0, max(len(line), 1), width)]
    return [piece.rstrip(" ") for piece in pieces] if stripped else pieces
