"""Lines that are passed over in a long log change nothing of what is read."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from benchmarks import long_logs
from rlprobe.importers import open_runs
from rlprobe.importers.console.repeats import sieve
from rlprobe.importers.console.repeats.sieve import Alike, LineBlock
from rlprobe.store.run import Run
from tests.importers.reading import log

NOISE = (
    "", "   ", "Loading checkpoint shards: done", "-" * 30, "=====", "| a | b |", "|---|---|",
    "step loss", "Step:", "***** Evaluating on the test set *****", "  Number of pairs: 12",
    "accuracy: 0.53", "{'train_runtime': 12.5, 'train_loss': 0.4}", "{", "'loss': 0.5,", "}",
    "<table>", "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
    "grad_norm is not finite: nan", "epoch 3", "we add 5 and 6, so x = 11", "nan", "reward: 0.5",
    "[rank1]: loading", "Traceback (most recent call last):", '  File "train.py", line 5, in main',
    "ValueError: 5 is not 6", "steps: [1, 2]", "│ loss │ 0.5 │", "\x1b[36mloss\x1b[0m: 0.25",
    "step=10, skipped=6, lr=[1e-4], mom=[(0.9, 0.95)]", "rewards: [0.5, 1.0]", "Größe: 0,5",
)  # fmt: skip


def same_runs(a: Run, b: Run) -> None:
    assert a.steps.names == b.steps.names
    for name in a.steps.names:
        one, other = a.steps.series(name), b.steps.series(name)
        assert one is not None
        assert other is not None
        assert one.steps.tolist() == other.steps.tolist()
        np.testing.assert_array_equal(one.values, other.values)
    assert a.events == b.events
    assert a.info.notes == b.info.notes
    assert a.info.unread == b.info.unread


@pytest.mark.parametrize("kind", long_logs.CONSOLE)
@pytest.mark.parametrize("seed", range(4))
def test_with_and_without(
    kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = random.Random(seed)
    lines: list[str] = []
    for step in range(1, 40):
        lines += long_logs.CONSOLE[kind](step, numbers)
        lines += numbers.choices(NOISE, k=numbers.randint(0, 3) * (seed > 0))
    lines += ["Traceback (most recent call last):", '  File "a.py", line 1', "OSError: 5"] * (
        seed % 2
    )
    path = log(tmp_path, "run.log", "\n".join(lines))
    monkeypatch.setattr(sieve, "WORTHWHILE_BYTES", 10**9)
    slow = open_runs(path)
    monkeypatch.setattr(sieve, "WORTHWHILE_BYTES", 0)
    monkeypatch.setattr(sieve, "_OFTEN", 1)  # else what comes once in such a short block is text
    monkeypatch.setattr(sieve, "BLOCK_BYTES", 4096)
    fast = open_runs(path)
    assert len(fast) == len(slow)
    for one, other in zip(fast, slow, strict=True):
        same_runs(one, other)


def test_lines_that_cannot_matter() -> None:
    text = (
        "a b c\nstep 1 | loss: 0.5\r\nsome words\nloss: 2\r\rloss: 3\n\n"
        "The sum of 43 * 2 = 86 is then what we were to find in this problem\n"
    )
    block = LineBlock(text.encode(), ended=4, of_long=True)
    likes = Alike().of(block)
    lines = zip(block.numbers, block.texts, likes, strict=True)
    assert [(number, text) for number, text, like in lines if like.matters] == [
        (6, "step 1 | loss: 0.5"),
        (8, "loss: 2"),
        (8, "loss: 3"),
    ]


def test_of_a_long_log_what_comes_again_or_has_a_known_name_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sieve, "WORTHWHILE_BYTES", 0)
    numbers = random.Random(1)
    lines: list[str] = []
    for step in range(1, 80):
        words = numbers.sample(("apples", "cost", "triangle", "then", "width", "sold", "we"), 5)
        lines.append(f"Step {step % 4}: so the {' '.join(words)} {step} is {step * 3} dollars.")
        lines.append(f"{step}. {words[0]} {words[1]} of {words[2]}: {step * 7}")
        lines.append(f"step {step} | loss: {1 / step:.4f} | grad_norm: 0.5")
        lines.append(f"zorp beta: {step * 2}")
    lines[40:40] = ["kl: 0.2 was seen by the old", "mean_kl: 0.75"]
    lines += [
        "10:11:12 | Step | Adv | KL",
        *(f"10:11:12 | {n} | {n / 8} | 0.5" for n in range(1, 80)),
    ]
    (run,) = open_runs(log(tmp_path, "run.log", "\n".join(lines)))
    assert set(run.steps.names) == {"loss", "grad_norm", "zorp beta", "kl_mean", "Adv", "KL"}
    zorp = run.steps.series("zorp beta")
    assert zorp is not None
    assert zorp.values.tolist() == [step * 2 for step in range(1, 80)]
    (unread,) = run.info.unread
    assert unread.count == 1


@pytest.mark.parametrize("size", [64, 4096, 10**6])
def test_the_last_lines_are_there_though_passed_over(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sieve, "WORTHWHILE_BYTES", 0)
    monkeypatch.setattr(sieve, "BLOCK_BYTES", size)
    text = "step 1 | loss: 0.5\nTraceback (most recent call last):\n  File 'a.py', line 1\n"
    text += "".join(f"    frame {n} of many\n" for n in range(30)) + "OSError: no space left\n"
    run = open_runs(log(tmp_path, "run.log", text))[0]
    assert [(event.kind, event.message) for event in run.events] == [
        ("crash", "OSError: no space left")
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\n\nstep 1 | loss: 0.5\n\n\nkl: 0.2 was seen by the old\n", 6),
        ("step 1 | loss: 0.5\r\n\r\nkl: 0.2 was seen by the old\r\n", 3),
        ("10%\r20%\r30%\nstep 1 | loss: 0.5\nkl: 0.2 was seen by the old", 3),
    ],
)
def test_lines_are_numbered_as_editors_do(text: str, line: int, tmp_path: Path) -> None:
    (unread,) = open_runs(log(tmp_path, "run.log", text))[0].info.unread
    assert [number for number, _ in unread.examples] == [line]


def test_skeletons() -> None:
    lines = (
        "loss: -0.5, kl: 1.5e-05,  lr: 3E+4", "loss: 12, kl: .5,  lr: 0", "5 - 3 = 2", "v1.2.3-rc4",
        "a" + " " * 9 + "1", "a  1", "reward:", "",
    )  # fmt: skip
    block = LineBlock("\n".join(lines).encode())
    assert block.skeletons == [
        b"loss: 0, kl: 0,  lr: 0", b"loss: 0, kl: 0,  lr: 0", b"0 - 0 = 0", b"v0-rc0",
        b"a  0", b"a  0", b"reward:", b"",
    ]  # fmt: skip
