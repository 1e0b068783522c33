"""Words of commands -> the Pythons they start, by name alone: nothing is started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlprobe.commands import command_line
from rlprobe.commands.starts import Start
from tests.doctor.prepared import executable


@pytest.fixture
def bin_(tmp_path: Path) -> Path:
    """A folder of programs: two Pythons, console scripts of one of them, a program of bytes."""
    folder = tmp_path / "bin"
    for name in ("python", "python3", "python3.12"):
        executable(folder / name, "\x7fELF")
    for name in ("torchrun", "accelerate", "deepspeed", "trl", "jupyter"):
        executable(folder / name, f"#!{folder}/python3.12\nimport sys\n")
    executable(folder / "program", "\x7fELF")
    return folder


def read(bin_: Path, *words: str, **environ: str) -> list[Start]:
    given = {"PATH": str(bin_), "PYTHONPATH": "/hook", "HOME": "/nowhere", **environ}
    return command_line.read(words, given, bin_.parent).starts


def one(bin_: Path, command: str) -> Start:
    (start,) = read(bin_, *command.split())
    return start


# The command, the Python, what it runs, and how many ranks.
COMMANDS: list[tuple[str, str, str, int | None]] = [
    ("python train.py --lr 1", "python", "script train.py", 1),
    ("python3 -u -W error -Xdev -m a.b -c", "python3 -u -W error -X dev", "module a.b", 1),
    ("python -Bc print(1)", "python -B", "code print(1)", 1),
    ("python -", "python", "stdin ", 1),
    ("python --version", "python --version", "nothing ", 1),
    ("env -u B A=1 python train.py", "python", "script train.py", 1),
    ("nohup nice -n 5 python train.py", "python", "script train.py", 1),
    ("timeout -k 5 10m stdbuf -oL python train.py", "python", "script train.py", 1),
    ("time -f %e numactl -N 0 taskset 0x1 python train.py", "python", "script train.py", 1),
    ("xvfb-run -a python train.py", "python", "script train.py", 1),
    ("torchrun --nproc-per-node 2 train.py --nnodes 9", "python3.12", "script train.py", 2),
    ("torchrun --nnodes=2 --nproc_per_node=4 -m pkg.train", "python3.12", "module pkg.train", 8),
    ("torchrun --nproc_per_node gpu train.py", "python3.12", "script train.py", None),
    ("torchrun --standalone --no-python program", "", "nothing ", 1),
    ("python -m torch.distributed.run --nproc-per-node 2 t.py", "python", "script t.py", 2),
    ("accelerate launch --num_processes 2 --main_ip x t.py", "python3.12", "script t.py", 2),
    ("accelerate launch -m pkg.train --num_processes 3", "python3.12", "module pkg.train", 1),
    ("deepspeed --num_gpus 4 t.py --deepspeed ds.json", "python3.12", "script t.py", 4),
    ("deepspeed --include localhost:0,1 t.py", "python3.12", "script t.py", 2),
    ("mpirun -n 2 --mca btl self -x A python train.py", "python", "script train.py", 2),
    ("mpiexec -np 2 python a.py", "python", "script a.py", 2),
    ("mpirun --host a,b python train.py", "python", "script train.py", None),
    ("srun -n2 --cpus-per-task 4 python train.py", "python", "script train.py", 2),
    ("srun -N 2 --ntasks-per-node=4 python train.py", "python", "script train.py", 8),
    ("mpirun -n 2 env A=1 torchrun --nproc-per-node 2 t.py", "python3.12", "script t.py", 4),
    ("uv run --with x t.py", "uv run --with x --no-sync --offline python", "script t.py", 1),
    ("uv run -m pkg", "uv run --no-sync --offline python", "module pkg", 1),
    ("uv run python -I t.py", "uv run --no-sync --offline python -I", "script t.py", 1),
    ("uv run torchrun --nnodes 2 t.py", "uv run --no-sync --offline python", "script t.py", 2),
    ("poetry run python train.py", "poetry run python", "script train.py", 1),
    ("pipenv run python train.py", "pipenv run python", "script train.py", 1),
    ("conda run -n e -s python t.py", "conda run -n e -s python", "script t.py", 1),
    ("trl grpo --config c.yaml", "python3.12", "script BIN/trl", 1),
    ("program", "", "nothing ", 1),
    ("sh -c cd&&python${IFS}train.py", "", "nothing ", 1),
]  # fmt: skip


@pytest.mark.parametrize(("command", "python", "target", "ranks"), COMMANDS)
def test_what_a_command_starts(
    bin_: Path, command: str, python: str, target: str, ranks: int | None
) -> None:
    starts = read(bin_, *command.split())
    if command.startswith("sh"):
        assert starts == []
        return
    (start,) = starts
    folder = f"{bin_}/"
    assert " ".join(start.interpreter).replace(folder, "") == python
    shown = f"{start.target.kind} {start.target.text}".replace(str(bin_), "BIN")
    assert (shown, start.around.ranks) == (target, ranks)


MPMD = ("mpirun", "-n", "2", "python", "actor.py", ":", "-n", "1", "python", "learner.py")


def test_parts_of_one_job_are_ranks_of_it(bin_: Path) -> None:
    starts = read(bin_, *MPMD)
    assert [start.target.text for start in starts] == ["actor.py", "learner.py"]
    assert [start.around.ranks for start in starts] == [3, 3]


@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("env -i python train.py", "`env` takes PYTHONPATH away"),
        ("env -u PYTHONPATH python train.py", "`env` takes PYTHONPATH away"),
        ("sudo -E python train.py", "`sudo` drops it: put `sudo` before `rlprobe record`"),
        ("srun --export=NONE python train.py", "`srun --export=NONE` does not pass it on"),
    ],
)
def test_who_takes_the_hook_away(bin_: Path, command: str, change: str) -> None:
    start = one(bin_, command.replace("python", str(bin_ / "python")))
    assert start.around.environ.get("PYTHONPATH") is None
    assert start.around.changes == (change,)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("ssh host python train.py", True),
        ("docker run image python train.py", True),
        ("ray job submit -- python train.py", True),
        ("nohup kubectl exec pod -- python train.py", True),
        ("sbatch job.sh", False),
        ("tmux new -d python train.py", False),
    ],
)
def test_what_runs_elsewhere(bin_: Path, command: str, shown: bool) -> None:
    start = one(bin_, command)
    assert start.around.apart
    assert bool(start.around.output) is not shown


@pytest.mark.parametrize(
    ("line", "python"),
    [
        ("#!BIN/python3.12 -u", "BIN/python3.12 -u"),
        ("#!/usr/bin/env python3", "BIN/python3"),
        ("#!/usr/bin/env -S python3 -I", "BIN/python3 -I"),
    ],
)
def test_a_script_names_its_python(bin_: Path, line: str, python: str) -> None:
    executable(bin_.parent / "train", f"{line.replace('BIN', str(bin_))}\nprint()\n")
    start = one(bin_, "./train --lr 1")
    assert " ".join(start.interpreter).replace(str(bin_), "BIN") == python
    assert start.target.text == str(bin_.parent / "./train")
    assert bool(start.closed) is ("-I" in line)


def test_a_frozen_program_is_told(bin_: Path) -> None:
    executable(bin_ / "frozen", "\x7fELF" + "x" * 100_000 + "MEI\014\013\012\013\016" + "y" * 80)
    assert one(bin_, "frozen").problem == "is a frozen program: no hook gets into it"


def notebook(path: Path, kernel: str) -> None:
    cell = {"cell_type": "code", "source": ["%matplotlib inline\n", "import wandb"]}
    content: dict[str, Any] = {"cells": [cell], "metadata": {"kernelspec": {"name": kernel}}}
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "command",
    ["jupyter execute n.ipynb", "jupyter nbconvert --to notebook --execute n.ipynb"],
)
def test_the_python_of_a_notebook_is_its_kernels(bin_: Path, command: str) -> None:
    notebook(bin_.parent / "n.ipynb", "python3")
    assert one(bin_, command).interpreter == (f"{bin_}/python3.12",)
    notebook(bin_.parent / "n.ipynb", "mine")
    assert one(bin_, command).problem == "no kernel 'mine' was found"
    spec = bin_.parent / "share/jupyter/kernels/mine/kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": ["/other/python", "-m", "ipykernel_launcher"]}))
    assert one(bin_, command).interpreter == ("/other/python",)


def test_words_without_end_end(bin_: Path) -> None:
    assert read(bin_, *(["nohup"] * 100), "python", "train.py") == []
    executable(bin_.parent / "loop.sh", "#!/bin/bash\nbash loop.sh\n./loop.sh\nsource loop.sh\n")
    assert read(bin_, "bash", "loop.sh") == []


@pytest.mark.parametrize(
    "words",
    [["bash", ""], ["bash", "", "x"], ["sh", "-c"], [""], ["env"], ["python", ""], ["uv", "run"],
     ["torchrun"], ["mpirun", ":"], ["accelerate", "launch"], ["conda", "run", "-n"], ["timeout"]],
)  # fmt: skip
def test_words_that_lack_their_rest_are_read(bin_: Path, words: list[str]) -> None:
    read(bin_, *words)
