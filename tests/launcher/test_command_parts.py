"""Parts of `rlprobe record` that need no process: names, lines, rows, what a failure means."""

from __future__ import annotations

import ast
import re
import signal
from pathlib import Path

import pytest

from rlprobe import environment
from rlprobe.integrations import autoattach
from rlprobe.launcher.command import _without_secrets
from rlprobe.launcher.ending import Ending, explain
from rlprobe.launcher.output import Lines, OutputRows
from rlprobe.launcher.run_dirs import command_name, default_run_dir
from rlprobe.taps import variables


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train.py", "--x"], "train"),
        (["torchrun", "--nproc-per-node", "2", "jobs/grpo run.py"], "grpo_run"),
        (["python", "-m", "verl.trainer.main_ppo"], "main_ppo"),
        (["/usr/bin/bash", "-c", "x"], "bash"),
        (["..."], "command"),
    ],
)
def test_names_of_commands(command: list[str], name: str) -> None:
    assert command_name(command) == name


def test_all_sides_agree_on_the_names() -> None:
    source = (autoattach.FOLDER / "sitecustomize.py").read_text(encoding="utf-8")
    spelt = set(re.findall(r'"(RLPROBE_\w+)"', source))
    assert spelt == {environment.RUN, environment.STATUS, environment.TAPS}
    for name in ("RUN", "STATUS", "ROLE"):
        assert getattr(variables, name) == getattr(environment, name)


def test_variables_are_named_in_one_place() -> None:
    ours = Path(environment.__file__).parent
    strangers = [
        path.name
        for path in sorted(ours.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and re.fullmatch(r"RLPROBE_\w+", str(node.value))
    ]
    assert set(strangers) == {"environment.py", "sitecustomize.py", "variables.py"}


def test_the_startup_file_is_valid_for_old_pythons() -> None:
    source = (autoattach.FOLDER / "sitecustomize.py").read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 7))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= {"importlib", "os", "rlprobe", "sys", "types", "typing"}
    assert "__future__" not in source


def test_two_launches_in_one_second_do_not_share_a_directory(tmp_path: Path) -> None:
    places = {default_run_dir(["x"], tmp_path) for _ in range(5)}
    assert len(places) == 5


def test_a_known_failure_wins_over_the_signal() -> None:
    ending = Ending(134, signal.SIGABRT, None)
    data = explain(ending, ["RuntimeError: CUDA error: device-side assert triggered", "Aborted"])
    assert data["kind"] == "device_assert"
    assert data["signal"] == "SIGABRT"


def test_the_workers_failure_wins_over_its_launchers_account() -> None:
    tail = [
        "ValueError: generation_batch_size (2) must be divisible by num_generations (4).",
        "subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1.",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    ]
    assert explain(Ending(1, None, None), tail)["line"] == tail[0]


def test_lines_across_chunks_and_carriage_returns() -> None:
    seen: list[bytes] = []
    lines = Lines(seen.append)
    for chunk in (b"on", b"e\r", b"\ntwo\r\nthree\rfo", b"ur\n", b"\xff\n", b"rest"):
        lines.feed(1, chunk)
    lines.feed(2, b"other stream\n")
    tail = lines.finish()
    text = b"".join(seen).replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode("utf-8", "replace")
    assert text.splitlines() == ["one", "two", "three", "four", "\ufffd", "other stream", "rest"]
    assert tail == ["one", "two", "four", "\ufffd", "other stream", "rest"]


def test_the_tail_is_bounded() -> None:
    lines = Lines(lambda _: None)
    for number in range(1000):
        lines.feed(1, b"%d " % number + b"x" * 10_000 + b"\n")
    lines.feed(1, b"y" * 1_000_000)
    tail = lines.finish()
    assert len(tail) == 400
    assert max(map(len, tail)) <= 2_000


def _rows(lines: list[str]) -> list[tuple[int, dict[str, float]]]:
    written: list[tuple[int, dict[str, float]]] = []
    rows = OutputRows(lambda step, row: written.append((step, row)), lambda: True)
    rows.read("".join(f"{line}\n" for line in lines).encode())
    rows.finish()
    return written


def test_steps_of_trainer_rows_come_from_the_bar() -> None:
    bar = "  5%|5         | {}/200 [00:01<00:20,  9.0it/s]"
    row = "{'loss': 0.5, 'grad_norm': 1.0, 'learning_rate': 1e-6}"
    written = _rows([bar.format(8), row, bar.format(10), bar.format(11), row, bar.format(20), row])
    assert [step for step, _ in written] == [10, 20, 30]
    assert written[0][1] == {"loss": 0.5, "grad_norm": 1.0, "lr": 1e-6}


def test_steps_of_trainer_rows_are_counted_without_a_bar() -> None:
    row = "{'loss': 0.5, 'grad_norm': 1.0, 'learning_rate': 1e-6}"
    evaluation = "{'eval_loss': 0.25, 'eval_runtime': 1.0}"
    closing = "{'train_runtime': 3.0, 'train_loss': 0.5}"
    written = _rows([row, row, evaluation, row, closing])
    assert [(step, "eval/loss" in row) for step, row in written] == [
        (1, False),
        (2, False),
        (2, True),
        (3, False),
    ]


def test_a_flag_at_the_end_hides_nothing() -> None:
    assert _without_secrets(["a", "--token"]) == ["a", "--token"]
