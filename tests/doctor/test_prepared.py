"""`rlprobe doctor` for prepared environments: what it says would be recorded, and what not."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import rlprobe
from rlprobe.cli import main
from tests.doctor import prepared

WHOLE = ("wandb 9.9", "numpy 2.0", "pyarrow 17.0")
SOURCE = Path(rlprobe.__file__).parents[1]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder with a short name: screens shorten long ones."""
    with tempfile.TemporaryDirectory(prefix="doctor-") as folder:
        yield Path(folder).resolve()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for name in ("WANDB_MODE", "UV_PROJECT_ENVIRONMENT", "UV_NO_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    Path("train.py").write_text(prepared.TRAIN)


def screen(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """The exit code, and the screen without what depends on the machine."""
    code = main(["doctor", "--", *map(str, words)])
    text = prepared.unwrapped(capsys.readouterr().out, Path.cwd())
    return code, text.replace(str(SOURCE), "SOURCE").replace(_version(), "3.X")


def _version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def test_one_with_rlprobe_and_its_tracker(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    python = prepared.environment(tmp_path / "env", *WHOLE)
    code, text = screen(capsys, python, "train.py")
    assert text == textwrap.dedent(
        """\
        ~/env/bin/python train.py
        RECORDED   metrics are recorded as they are logged: wandb.log
        will be recorded
          wandb 9.9: wandb.log (train.py, line 6)
          all the same where a tracker is off: wandb.init(mode="offline")
          messages in what it prints, and how it ends
        looked at
          train.py, by the text: nothing of it was imported or run
          Python 3.X in ~/env/bin/python, asked where its packages are: rlprobe 0.2.0 is there
        """
    )
    assert code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["env", "train.py"]


def test_one_without_rlprobe(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Calls are recorded all the same; what needs the recorder is not, and it is said how."""
    python = prepared.environment(tmp_path / "env", "wandb 9.9", "trl 0.25.0", ours=False)
    Path("train.py").write_text(f"from trl import GRPOTrainer\n{prepared.TRAIN}")
    code, text = screen(capsys, python, "train.py")
    assert text == textwrap.dedent(
        """\
        ~/env/bin/python train.py
        RECORDED   metrics are recorded as they are logged: GRPOTrainer, wandb.log
        will be recorded
          trl 0.25.0: GRPOTrainer (train.py, line 1)
          wandb 9.9: wandb.log (train.py, line 7)
          all the same where a tracker is off: wandb.init(mode="offline")
          messages in what it prints, and how it ends
        will not be recorded
          gradients, weights and rollouts of the Trainer: rlprobe is not in ~/env/bin/python
        to do
          ~/env/bin/python -m pip install SOURCE
        looked at
          train.py, by the text: nothing of it was imported or run
          Python 3.X in ~/env/bin/python, asked where its packages are: rlprobe is not in \
~/env/bin/python; what it tells its trackers comes by way of a file
        """
    )
    assert code == 0


def test_one_with_another_program_of_that_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    python = prepared.environment(tmp_path / "env", "wandb 9.9", "rlprobe 0.1.0", ours=False)
    code, text = screen(capsys, python, "train.py")
    (site,) = Path("env").glob("lib/python*/site-packages")
    word = f"the rlprobe there is another program (0.1.0 in ~/{site}/rlprobe)"
    assert f"asked where its packages are: {word}; what it tells" in text
    assert "wandb 9.9: wandb.log (train.py, line 6)" in text
    assert code == 0


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("-I", "-I makes Python ignore PYTHONPATH"),
        ("-uE", "-E makes Python ignore PYTHONPATH"),
        ("-S", "-S makes Python start without `site`"),
    ],
)
def test_one_that_is_started_without_the_hook(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str, why: str
) -> None:
    python = prepared.environment(tmp_path / "env", *WHOLE)
    Path("train.py").write_text("import json\nfor step in range(9): print('step', step)\n")
    code, text = screen(capsys, python, option, "train.py")
    assert text == textwrap.dedent(
        f"""\
        ~/env/bin/python {option} train.py
        OUTPUT ONLY   metrics are recorded from what the command prints, and from nothing else
        will be recorded
          what it prints, where it reads as metrics (it prints or logs in 1 place)
        will not be recorded
          from inside: {why}, so the hook does not get in
        to do
          leave `{why[:2]}` out
        looked at
          train.py, by the text: nothing of it was imported or run
          Python 3.X in ~/env/bin/python, asked where its packages are
        """
    )
    assert code == 0


def test_one_behind_a_script_of_the_shell(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    prepared.environment(tmp_path / "env", *WHOLE)
    Path("run.sh").write_text(
        '#!/bin/bash\nset -e\ncd "$(dirname "$0")"\nsource env/bin/activate\n'
        "python train.py > log.txt 2>&1\nexport PYTHONPATH=$PWD/src\npython \\\n  train.py --lr 1\n"
    )
    code, text = screen(capsys, "bash", "run.sh")
    assert (
        text
        == textwrap.dedent(
            """\
        bash run.sh
        RECORDED   metrics are recorded as they are logged: wandb.log; in 1 of 2 programs
        will be recorded
          run.sh, line 5: wandb 9.9: wandb.log (train.py, line 6)
          run.sh, line 5: all the same where a tracker is off: wandb.init(mode="offline")
          run.sh, line 7: what it prints, where it reads as metrics
        will not be recorded
          run.sh, line 5: what it prints: it goes to `log.txt`, not through us
          run.sh, line 7: from inside: the hook does not get in: run.sh sets PYTHONPATH anew: \
append `:$PYTHONPATH` there
          run.sh, line 7: calls of wandb 9.9: wandb.log (train.py, line 6)
        """
        )
        + text[text.index("to do") :]
    )
    assert "run.sh, by the text: it was read, not run\n" in text
    assert code == 0
    assert not Path("log.txt").exists()


def test_one_whose_directory_cannot_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    python = prepared.environment(tmp_path / "env", *WHOLE)
    Path("runs").write_text("")
    code, text = screen(capsys, python, "train.py")
    assert text.splitlines()[1] == "NOT RECORDED   '~/runs' is no directory"
    assert "to do\n  --run DIR with a directory that you can write\n" in text
    assert code == 1


def test_one_whose_tracker_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    python = prepared.environment(tmp_path / "env", "numpy 2.0", "pyarrow 17.0")
    code, text = screen(capsys, python, "train.py")
    assert text.splitlines()[1] == "NOT RECORDED   the script needs wandb, which is not there"
    assert "wandb (train.py): wandb is not installed in ~/env/bin/python: the script ends" in text
    assert "~/env/bin/python -m pip install wandb" in text
    assert code == 1


def test_one_that_says_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Path("train.py").write_text("import json\nfor step in range(9): json.dumps(step)\n")
    code, text = screen(capsys, sys.executable, "train.py")
    assert text.splitlines()[1] == "NOT RECORDED   nothing of this command reaches us"
    assert "what it prints: nothing that prints or logs was seen" in text
    assert "log with any tracker, or print `step 1 loss 0.5` once a step" in text
    assert code == 1


def test_one_of_a_runner_that_chooses_the_python(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`uv run` as it is called; what stands in for it passes on what comes behind its options."""
    python = prepared.environment(tmp_path / "env", *WHOLE)
    stub = (
        '#!/bin/sh\necho "$@" | cut -c1-60 > asked\n'
        'while [ "$1" != python ]; do shift; done\nshift\n'
        f'exec {python} "$@"\n'
    )
    prepared.executable(tmp_path / "bin" / "uv", stub)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    code, text = screen(capsys, "uv", "run", "--no-project", "train.py")
    assert text.splitlines()[1].startswith("RECORDED")
    assert Path("asked").read_text().startswith("run --no-project --no-sync --offline python /")
    Path("pyproject.toml").write_text("[project]\n")
    code, text = screen(capsys, "uv", "run", "train.py")
    assert "uv would make the environment '~/.venv' first: ask again after `uv sync`" in text
    assert code == 3


def test_its_own_sitecustomize_runs_as_usual(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    python = prepared.environment(tmp_path / "env", *WHOLE)
    (site,) = Path("env").glob("lib/python*/site-packages")
    (site / "sitecustomize.py").write_text("import os; os.environ['SEEN'] = '1'\n")
    code, text = screen(capsys, python, "train.py")
    assert f"its own sitecustomize (~/{site}/sitecustomize.py) runs as usual" in text
    assert text.splitlines()[1].startswith("RECORDED")
    assert code == 0


def test_ranks_and_switched_off_trackers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = prepared.environment(tmp_path / "env", *WHOLE)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    words = (python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py")
    _, text = screen(capsys, *words)
    assert "2 ranks expected (torchrun)" in text
    assert 'a tracker is off: WANDB_MODE=disabled, wandb.init(mode="offline")' in text


def test_a_recording_that_is_being_written_is_not_written_into(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with rlprobe.Recorder(tmp_path / "run") as recorder:
        recorder.step(1, loss=1.0)
        code = main(["doctor", "--run", "run", sys.executable, "-c", "print(1)"])
        text = capsys.readouterr().out
    assert "'run' is being recorded into by a job that runs" in text
    assert "--run DIR with another directory" in text
    assert code == 1
    assert main(["doctor", "--run", "run", sys.executable, "-c", "print(1)"]) == 0
    assert "1 attempt in it" in capsys.readouterr().out


def test_for_programs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    python = prepared.environment(tmp_path / "env", *WHOLE)
    assert main(["doctor", "--format", "json", "--", str(python), "train.py"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["recorded"], said["verdict"], said["ranks"]) == (True, "inside", 1)
    assert said["will"][0] == "wandb 9.9: wandb.log (train.py, line 6)"
    assert said["pythons"][0]["packages"]["wandb"] == "9.9"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["nosuch", "train.py"], "Couldn't look at 'nosuch train.py': 'nosuch' not found"),
        (["./nosuch"], "Couldn't look at './nosuch': './nosuch' not found"),
        (["python3", "nosuch.py"], "Couldn't look at 'python3 nosuch.py': no such file"),
    ],
)
def test_what_cannot_be_started_is_an_error(
    capsys: pytest.CaptureFixture[str], words: list[str], error: str
) -> None:
    assert main(["doctor", *words]) == 2
    assert capsys.readouterr().err.startswith(f"rlprobe: {error}")


def test_a_program_that_is_not_looked_into(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    prepared.executable(tmp_path / "train", "\x7fELF")
    code, text = screen(capsys, "./train")
    assert text.splitlines()[1] == (
        "OUTPUT ONLY   metrics are recorded from what the command prints; what it starts was not "
        "seen"
    )
    assert "from inside, where `./train` starts a Python: not looked into" in text
    assert code == 0


def test_a_command_that_runs_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = screen(capsys, "ssh", "host", "python", "train.py")
    assert "from inside: ssh runs the command on another host" in text
    assert "record inside of it instead: `ssh … rlprobe record COMMAND`" in text
    assert code == 0
    code, text = screen(capsys, "sbatch", "job.sh")
    assert text.splitlines()[1] == "NOT RECORDED   nothing of this command reaches us"
    assert code == 1


def test_nothing_that_the_command_names_is_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Neither the script, nor what it imports, nor what stands in a script of the shell."""
    Path("beside.py").write_text("open('imported', 'w')\n")
    Path("train.py").write_text("import beside, numpy\nopen('run', 'w')\n")
    Path("run.sh").write_text(f"touch touched; $(touch sub)\n{sys.executable} train.py\n")
    for words in (
        ["bash", "run.sh"],
        [sys.executable, "train.py"],
        [sys.executable, "-m", "train"],
    ):
        assert main(["doctor", *words]) in (0, 1)
    capsys.readouterr()
    there = {path.name for path in tmp_path.iterdir()}
    assert there == {"beside.py", "train.py", "run.sh"}


def test_a_script_with_dependencies_of_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`uv run` makes an environment for it: that one is asked, if it is there."""
    python = prepared.environment(tmp_path / "environments-v2" / "train-1", *WHOLE, ours=False)
    stub = '#!/bin/sh\necho "$@" | cut -c1-80 >> asked\ncat where\n'
    prepared.executable(tmp_path / "bin" / "uv", stub)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    Path("train.py").write_text(
        f'# /// script\n# dependencies = ["wandb"]\n# ///\n{prepared.TRAIN}'
    )
    Path("where").write_text("/usr/bin/python3\n")
    code, text = screen(capsys, "uv", "run", "train.py")
    assert "uv would make an environment for 'train.py' first: ask again after `uv sync" in text
    assert code == 3
    Path("where").write_text(f"{python}\n")
    code, text = screen(capsys, "uv", "run", "train.py")
    assert text.splitlines()[1].startswith("RECORDED")
    assert "wandb 9.9: wandb.log (train.py, line 9)" in text
    assert code == 0
    assert Path("asked").read_text().startswith("python find --offline --script")


def test_workers_of_a_ray_that_runs_already(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = prepared.environment(tmp_path / "env", "ray 2.9", *WHOLE)
    Path("train.py").write_text("from ray import train\ntrain.report({'loss': 1})\n")
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    _, text = screen(capsys, python, "train.py")
    assert "ray 2.9: train.report (train.py, line 2)" in text
    assert "workers of the Ray at RAY_ADDRESS=10.0.0.1:6379: they were started without" in text


def test_variables_before_a_command_are_the_shells(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "A=1", "python", "train.py"]) == 2
    assert "try: Put `env` before it" in capsys.readouterr().err


def test_secrets_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    secret = "hf_abcdefghijklmnopqrstuvwxyz0123456789"
    Path("run.sh").write_text(
        f"ssh --token={secret} python3 a.py\nnosuchrun python --api-key {secret}\n"
    )
    for words in (
        ["python3", "train.py", "--api-key", secret],
        ["bash", "run.sh"],
        ["nosuch", secret],
    ):
        main(["doctor", *words])
        main(["doctor", "--format", "json", *words])
        captured = capsys.readouterr()
        assert secret not in captured.out + captured.err
