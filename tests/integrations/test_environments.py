"""Pythons that are not ours under `rlprobe record`: what they tell their tracker is recorded.

The tracker is the real tensorboardX, in an environment without rlprobe and without what it needs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from rlprobe.cli import main
from rlprobe.store.recording import Recording
from tests.launcher import processes

pytestmark = pytest.mark.integration

TRAIN = """
from tensorboardX import SummaryWriter

def train(folder="tb"):
    with SummaryWriter(folder) as writer:
        for step in range(5):
            writer.add_scalar("train/loss", 1.0 / (step + 1), step)
            writer.add_scalar("train/reward", float(step), step)

if __name__ == "__main__":
    train()
"""
LOSS = [1.0, 0.5, 1 / 3, 0.25, 0.2]
_NEEDED = ("tensorboardX", "numpy", "google.protobuf", "packaging")
Record = Callable[..., str]


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Python of an environment with tensorboardX and nothing of ours."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "bare"], check=True)
    (site,) = Path("bare").glob("lib/python*/site-packages")
    for name in _NEEDED:
        spec = find_spec(name)
        assert spec is not None, name
        (folder,) = list(spec.submodule_search_locations or ())
        link = site.joinpath(*name.split("."))
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(folder)
    libraries = Path(str(find_spec("numpy").origin)).parent.with_name("numpy.libs")  # type: ignore[union-attr]
    if libraries.is_dir():
        (site / "numpy.libs").symlink_to(libraries)
    return tmp_path / "bare" / "bin" / "python"


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Record a command; what was said of it."""

    def run(*command: object, **environ: str) -> str:
        given = {**processes.ENVIRONMENT, **environ}
        given.pop("PYTHONPATH", None)
        done = subprocess.run(
            [*processes.RECORD, "--run", "run", "--", *map(str, command)],
            env=given | {key: value for key, value in environ.items() if key == "PYTHONPATH"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    return run


def loss(run_dir: str = "run") -> list[float]:
    """The losses that are recorded, by step."""
    series = Recording(Path(run_dir)).steps.series("loss")
    assert series is not None
    assert series.steps.tolist() == list(range(len(series.steps)))
    return list(map(float, series.values))


@pytest.mark.parametrize(
    "how", ["python", "-m", "bash", "shebang", "env", "stdin", "safe path", "no user site", "-sBOO"]
)
def test_an_environment_without_rlprobe(bare: Path, record: Record, how: str) -> None:
    Path("run.sh").write_text(f"#!/bin/bash\nset -e\ncd .\n{bare} train.py\n")
    Path("run.sh").chmod(0o755)
    Path("train").write_text(f"#!{bare}\n{TRAIN}")
    Path("train").chmod(0o755)
    commands: dict[str, list[object]] = {
        "python": [bare, "train.py"],
        "-m": [bare, "-m", "train"],
        "bash": ["bash", "run.sh"],
        "shebang": ["./train"],
        "env": ["env", "A=1", "nice", bare, "-u", "train.py"],
        "safe path": ["env", "PYTHONSAFEPATH=1", bare, "train.py"],
        "no user site": ["env", "PYTHONNOUSERSITE=1", bare, "train.py"],
        "-sBOO": [bare, "-sBOO", "train.py"],
        "stdin": ["sh", "-c", f"{bare} - < train.py"],
    }
    said = record(*commands[how])
    assert "5 rows from SummaryWriter.add_scalar; recorded in run" in said
    assert loss() == pytest.approx(LOSS)


@pytest.mark.skipif(not shutil.which("uv"), reason="uv is not installed")
def test_uv_run(bare: Path, record: Record) -> None:
    options = ["--offline", "--no-project", "--python", bare]
    said = record("uv", "run", *options, "train.py")
    assert "5 rows from SummaryWriter.add_scalar" in said
    assert loss() == pytest.approx(LOSS)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("-I", "-I makes Python ignore PYTHONPATH, so the hook does not get in (leave -I out)"),
        ("-E", "-E makes Python ignore PYTHONPATH, so the hook does not get in (leave -E out)"),
        ("-S", "-S makes Python start without `site`, so the hook does not get in"),
    ],
)
def test_where_the_hook_does_not_get_in_it_is_said(
    bare: Path, record: Record, option: str, why: str
) -> None:
    said = record("bash", "-c", f"{bare} {option} -c 'print(1)'")
    assert f"0 rows recorded in run: {why}" in said
    said = record("bash", "-c", f"{bare} {option} -c 'print(\"step 1 loss 0.5\")'")
    assert f"rlprobe: {why}" in said
    assert "1 row from the output; recorded in run" in said


def test_a_path_that_is_set_anew_is_said(bare: Path, record: Record) -> None:
    Path("run.sh").write_text(f"export PYTHONPATH=$PWD/src\n{bare} train.py\n")
    said = record("bash", "run.sh")
    assert "run.sh sets PYTHONPATH anew: append `:$PYTHONPATH` there" in said


def test_customizations_of_the_environment_run_as_before(bare: Path, record: Record) -> None:
    (site,) = Path("bare").glob("lib/python*/site-packages")
    for name in ("sitecustomize", "usercustomize"):
        code = f"import sys; sys.seen = getattr(sys, 'seen', []) + ['{name}']\n"
        (site / f"{name}.py").write_text(code)
    Path("seen.py").write_text("import sys; print(sys.seen); import train; train.train()")
    (Path("bare") / "pyvenv.cfg").write_text(
        (Path("bare") / "pyvenv.cfg")
        .read_text()
        .replace("include-system-site-packages = false", "include-system-site-packages = true")
    )
    plain = subprocess.run(
        [bare, "seen.py"], capture_output=True, text=True, check=True, env=processes.ENVIRONMENT
    )
    said = record("sh", "-c", f"{bare} seen.py > seen")
    assert Path("seen").read_text() == plain.stdout
    assert "sitecustomize" in plain.stdout
    assert "5 rows from SummaryWriter.add_scalar" in said


def test_a_customization_that_fails_fails_as_before(bare: Path, record: Record) -> None:
    (site,) = Path("bare").glob("lib/python*/site-packages")
    (site / "sitecustomize.py").write_text("raise ValueError('theirs')\n")
    said = record(bare, "train.py")
    assert "ValueError: theirs" in said
    assert "5 rows from SummaryWriter.add_scalar" in said


# Each logs 5 rows as well, below a process that does; or alone, where the parent logs nothing.
CHILDREN = {
    "spawn": """
        import multiprocessing
        context = multiprocessing.get_context("spawn")
        child = context.Process(target=train.train, args=("helper",))
        child.start(); child.join(); assert child.exitcode == 0
    """,
    "fork": """
        import multiprocessing
        context = multiprocessing.get_context("fork")
        child = context.Process(target=train.train, args=("helper",))
        child.start(); child.join(); assert child.exitcode == 0
    """,
    "-c": """
        import subprocess
        code = "import train; train.train('helper')"
        subprocess.run([sys.executable, "-c", code], check=True)
    """,
}


@pytest.mark.parametrize("how", sorted(CHILDREN))
def test_children_of_a_process_that_records_are_helpers(
    bare: Path, record: Record, how: str
) -> None:
    lines = ["import sys, train", "if __name__ == '__main__':", "    train.train()"]
    lines.append(textwrap.indent(textwrap.dedent(CHILDREN[how]), "    "))
    Path("parent.py").write_text("\n".join(lines))
    said = record(bare, "parent.py")
    assert "5 rows from SummaryWriter.add_scalar" in said
    assert loss() == pytest.approx(LOSS)
    assert sorted(path.name for path in Path().glob("run*")) == ["run"]


@pytest.mark.parametrize("how", sorted(CHILDREN))
def test_a_child_that_trains_for_a_parent_that_does_not_is_recorded(
    bare: Path, record: Record, how: str
) -> None:
    lines = ["import sys, train", "if __name__ == '__main__':"]
    lines.append(textwrap.indent(textwrap.dedent(CHILDREN[how]), "    "))
    Path("parent.py").write_text("\n".join(lines))
    assert "5 rows from SummaryWriter.add_scalar" in record(bare, "parent.py")
    assert loss() == pytest.approx(LOSS)


@pytest.mark.skipif(
    not (find_spec("nbclient") and find_spec("ipykernel")), reason="nbclient is not installed"
)
def test_a_notebook_that_is_executed(bare: Path, record: Record, tmp_path: Path) -> None:
    """The kernel is a process of its own; it is started below the command."""
    cells = [TRAIN.replace('__name__ == "__main__"', "True")]
    notebook = {
        "cells": [
            {"cell_type": "code", "source": code, "metadata": {}, "outputs": [], "id": "a",
             "execution_count": None}
            for code in cells
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "p"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }  # fmt: skip
    Path("n.ipynb").write_text(json.dumps(notebook))
    code = "from nbclient.cli import main; main()"
    given = {"HOME": str(tmp_path), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    said = record(sys.executable, "-c", code, "--timeout=90", "n.ipynb", **given)
    assert "5 rows from SummaryWriter.add_scalar" in said
    assert loss() == pytest.approx(LOSS)


# The shape of tensorboardX, for Pythons that the real one is not installed for.
WRITER = """
class SummaryWriter:
    def __init__(self, folder): pass
    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None): return tag
    def __enter__(self): return self
    def __exit__(self, *_): pass
"""


def old_python(version: str) -> Path | None:
    """A Python of this version on this machine."""
    named = shutil.which(f"python{version}")
    places = [Path(named)] if named else []
    places += Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")
    for place in places:
        code = ["-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run([place, *code], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return place
    return None


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.12", "3.13"])
def test_pythons_of_other_versions(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    python = old_python(version)
    if python is None:
        pytest.skip(f"there is no Python {version}")
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)
    Path("tensorboardX").mkdir()
    Path("tensorboardX/__init__.py").write_text("from .writer import SummaryWriter\n")
    Path("tensorboardX/writer.py").write_text(WRITER)
    assert "5 rows from SummaryWriter.add_scalar" in record(python, "train.py")
    assert loss() == pytest.approx(LOSS)


@pytest.mark.parametrize("version", ["3.6", "3.7"])
def test_pythons_that_are_too_old_run_as_before(record: Record, version: str) -> None:
    python = old_python(version)
    if python is None:
        pytest.skip(f"there is no Python {version}")
    said = record(python, "-c", "print('step 1 loss 0.5')")
    assert f"Python {version} is older than 3.11" in said
    assert "1 row from the output" in said


@pytest.mark.parametrize(
    "command",
    ["{python} train.py", "bash run.sh", "{python} -I train.py", "env -i {python} train.py"],
)
def test_doctor_says_what_record_does(
    bare: Path, record: Record, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """What is said to be recorded from inside is, and what is not said to be is not."""
    Path("run.sh").write_text(f"set -e\nexport A=1\n{bare} train.py | tee log\n")
    words = command.format(python=bare).split()
    main(["doctor", "--format", "json", "--", *words])
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    assert (verdict == "inside") == ("SummaryWriter.add_scalar" in record(*words))
