"""Output at speed: what it costs to read it, and that what is not read is said."""

from __future__ import annotations

import math
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rlprobe.importers import open_runs
from rlprobe.launcher import relay
from rlprobe.launcher.output import Lines, OutputRows
from rlprobe.store.recording import Recording
from tests.launcher.processes import python, start, until

Line = Callable[[int], str]
LINES: dict[str, Line] = {
    "json": lambda i: f'{{"step": {i}, "loss": {wave(i)}, "reward": {wave(3 * i)}, "lr": 1e-6}}\n',
    "key=value": lambda i: (
        f"2026-01-01 12:00:00,123 INFO worker=3 step: {i} loss: {wave(i)} lr=1e-6 tokens/s: 12.5\n"
    ),
    "trainer": lambda i: (
        f"{{'loss': {wave(i)}, 'grad_norm': {wave(2 * i)}, 'epoch': {i / 1000}}}\n"
    ),
    "bar and trainer": lambda i: (
        f" {i // 400}%|## | {i}/40000 [00:10<00:12, 45.2it/s]\r"
        f"{{'loss': {wave(i)}, 'grad_norm': {wave(2 * i)}, 'epoch': {i / 1000}}}\n"
    ),
    "verl": lambda i: (
        f"(Task pid=1) step:{i} - actor/pg_loss:{wave(i)} - actor/kl_loss:{wave(5 * i)} "
        f"- critic/rewards/mean:{wave(7 * i)} - timing_s/step:1.25\n"
    ),
}


def wave(i: int) -> str:
    return f"{1.5 + math.sin(i):.4f}"


def read(data: bytes, chunk: int = 65_536) -> tuple[list[tuple[int, dict[str, float]]], float]:
    """Rows of output that comes in pieces, and the seconds of CPU that reading it took."""
    rows: list[tuple[int, dict[str, float]]] = []
    output = OutputRows(lambda step, row: rows.append((step, row)), lambda: True)
    lines = Lines(output.read)
    began = time.process_time()
    for start_at in range(0, len(data), chunk):
        lines.feed(1, data[start_at : start_at + chunk])
    lines.finish()
    output.finish()
    return rows, time.process_time() - began


@pytest.mark.parametrize("name", sorted(LINES))
def test_rows_at_speed_are_those_of_a_scan_and_cost_little(name: str, tmp_path: Path) -> None:
    data = "".join(map(LINES[name], range(1, 10_001))).encode()
    read(data[: data.index(b"\n", 1000) + 1])  # patterns and alias files, once
    rows, seconds = read(data)
    log = tmp_path / "train.log"
    log.write_bytes(data)
    (run,) = open_runs(log)
    assert len(rows) == len(run.steps) == 10_000
    for metric in ("loss", "grad_norm", "pg_loss", "reward/mean"):
        series = run.steps.series(metric)
        recorded = {step: row[metric] for step, row in rows if metric in row}
        if series is not None:
            assert list(recorded.values()) == pytest.approx(series.values.tolist())
            # With hindsight, the steps of rows that tell none are another's.
            assert name == "bar and trainer" or list(recorded) == series.steps.tolist()
    assert seconds / 10_000 < 60e-6  # 20 on a quiet machine, 500 line by line


def test_rows_in_small_pieces_are_the_same() -> None:
    data = "".join(map(LINES["json"], range(1, 200))).encode()
    assert read(data, chunk=7)[0] == read(data)[0]


def test_words_cost_next_to_nothing() -> None:
    words = ["alpha", "beta", "house", "walks", "because", "therefore", "so", "it", "goes", "on"]
    text = "\n".join(
        " ".join(words[(i * 7 + j * j + i // 3) % 10] for j in range(14)) for i in range(100_000)
    )
    read(text[:100_000].encode())
    rows, seconds = read(text.encode())
    assert rows == []
    assert len(text) / seconds > 8e6  # bytes per second; 30e6 on a quiet machine


def test_lines_past_the_deadline_are_counted_not_read() -> None:
    seen: list[bytes] = []
    lines = Lines(seen.append)
    lines.feed(1, b"one\n")
    lines.flush()
    lines.deadline = 0.0
    lines.feed(1, b"two\nthree\n")
    assert lines.finish()[-1] == "three"  # the last words are kept all the same
    assert seen == [b"one\n"]
    assert (lines.unread.size, lines.unread.lines) == (10, 2)


def test_what_is_left_of_a_line_says_nothing() -> None:
    seen: list[bytes] = []
    lines = Lines(seen.append)
    lines.feed(1, b"step 1 | loss 0.5\nstep 2 | lo")
    lines.lose(1, 1000, 20)
    lines.feed(1, b"0.25\nstep 9 | loss 0.75\n")
    lines.finish()
    assert b"".join(seen) == b"step 1 | loss 0.5\nstep 9 | loss 0.75\n"
    assert lines.unread.size == 1000


def test_copies_that_nobody_takes_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "QUEUE_BYTES", 1_000_000)
    ours, theirs = socket.socketpair()
    copies = relay.Copies(theirs.fileno())
    piece = b"x" * 9_999 + b"\n"
    for _ in range(1_000):
        copies.put(1, piece)  # returns at once, however slow we are
    frames = bytearray()

    def take() -> None:
        while data := ours.recv(65_536):
            frames.extend(data)

    taking = threading.Thread(target=take)
    taking.start()
    copies.finish()
    theirs.close()
    taking.join()
    ours.close()
    taken = lost = at = 0
    while at < len(frames):
        kind, size = relay.HEAD.unpack_from(frames, at)
        content = bytes(frames[at + relay.HEAD.size : at + relay.HEAD.size + size])
        at += relay.HEAD.size + size
        if kind == relay.LOST:
            stream, size, lines = relay.COUNTS.unpack(content)
            assert (stream, size) == (1, lines * 10_000)
            lost += lines
        else:
            taken += content.count(b"\n")
    assert lost > 0
    assert taken > 0
    assert taken + lost == 1_000


def test_a_launcher_that_stands_still_slows_nothing_and_says_so(tmp_path: Path) -> None:
    done, log = tmp_path / "done", tmp_path / "log"
    code = """
    import os, pathlib, sys
    print("step 1 | loss 0.5")
    input()
    line = b"the quick brown fox jumps over the lazy dog and on it goes\\n"
    for _ in range(60_000_000 // (1000 * len(line))):
        os.write(1, line * 1000)
    pathlib.Path(sys.argv[1]).touch()
    """
    with log.open("wb") as out:
        process = start(
            tmp_path / "run",
            *python(code, str(done)),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.PIPE,
        )
    until(lambda: b"step 1" in log.read_bytes())
    process.send_signal(signal.SIGSTOP)
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    until(done.exists)
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"came faster than it could be read" in err
    recording = Recording(tmp_path / "run")
    (event,) = [e for e in recording.events if e.kind == "output_skipped"]
    assert event.data["bytes"] > 10_000_000
    assert any("came faster" in note for note in recording.info.notes)
    assert log.stat().st_size > 59_000_000
