"""A command whose Python has another program called rlprobe: told apart, and never harmed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rlprobe
from rlprobe.cli import main
from rlprobe.launcher import children
from rlprobe.store.recording import Recording

TRAIN = """
from transformers.trainer import Trainer
print(Trainer().train())
print("step 1 | loss 0.5 | grad_norm 1.0")
"""
Site = Callable[[str], Path]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A folder of packages that comes before ours: a Trainer, and what is asked for."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "site-packages"
    monkeypatch.setenv("PYTHONPATH", str(folder))
    trainer = folder / "transformers"
    trainer.mkdir(parents=True)
    (trainer / "__init__.py").write_text("")
    (trainer / "trainer.py").write_text("class Trainer:\n    def train(self): return 'trained'\n")

    def install(name: str) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("__version__ = '0.1.0'\nclass Recorder: pass\n")
        return path

    return install


def recorded(capfd: pytest.CaptureFixture[str], code: str = TRAIN) -> tuple[str, list[str]]:
    """What the command wrote, and what we said of it."""
    assert main(["record", "--run", "run", sys.executable, "-c", code]) == 0
    captured = capfd.readouterr()
    return captured.out, captured.err.splitlines()


def test_another_program_of_that_name(capfd: pytest.CaptureFixture[str], site: Site) -> None:
    package = site("rlprobe/__init__.py").parent
    (package.parent / "rlprobe-0.1.0.dist-info").mkdir()
    code = f"import rlprobe; rlprobe.Recorder; {TRAIN}"
    out, err = recorded(capfd, code.replace("; \n", "\n"))
    assert out.startswith("trained\n")
    assert err[0] == (
        f"rlprobe: cannot record inside {sys.executable}: the rlprobe there is another program "
        f"(0.1.0 in {package}); recording what the output tells. To record from the inside: "
        f"{sys.executable} -m pip install {Path(rlprobe.__file__).parents[1]}"
    )
    assert len(err) == 2
    assert Recording(Path("run")).steps.step.tolist() == [1]


def test_a_module_of_that_name(capfd: pytest.CaptureFixture[str], site: Site) -> None:
    module = site("rlprobe.py")
    out, err = recorded(capfd)
    assert out.startswith("trained\n")
    assert f"another program ({module})" in err[0]


def test_one_that_only_the_script_sees(
    capfd: pytest.CaptureFixture[str], site: Site, tmp_path: Path
) -> None:
    site("unrelated.py")
    beside = tmp_path / "job"
    beside.mkdir()
    (beside / "rlprobe.py").write_text("")
    (beside / "train.py").write_text(TRAIN)
    assert main(["record", sys.executable, "job/train.py"]) == 0
    captured = capfd.readouterr()
    assert captured.out.startswith("trained\n")
    assert f"another program ({beside / 'rlprobe.py'})" in captured.err


def test_a_copy_of_ours_is_ours(capfd: pytest.CaptureFixture[str], site: Site) -> None:
    package = site("rlprobe/__init__.py").parent
    (package / "_version.py").write_text('__version__ = "9.9"\n')
    (package / "integrations" / "autoattach").mkdir(parents=True)
    (package / "integrations" / "autoattach" / "sitecustomize.py").write_text("")
    _, err = recorded(capfd, "print(1)")
    assert "no Hugging Face Trainer was trained" in err[0]


def test_none_at_all_is_told_how_to_get_this_one(tmp_path: Path) -> None:
    (tmp_path / "python-1.json").write_text(
        '{"executable": "/p/python", "rlprobe": null, "missing": "yes", "error": "not installed"}'
    )
    why, remedy = children.why_outside(tmp_path)
    assert why == "cannot record inside /p/python: not installed"
    source = Path(rlprobe.__file__).parents[1]
    assert remedy == f". To record from the inside: /p/python -m pip install {source}"


def test_no_advice_gets_the_other_program() -> None:
    """What the package index has under our name is not this program."""
    wrong = re.compile(r"pip install\s+(-\S+\s+)*['\"]?rlprobe\b")
    root = Path(__file__).parents[2]
    places = [root / "README.md", root / "CONTRIBUTING.md", root / "Makefile"]
    for folder in ("rlprobe", "detectors", "schemas", "docs", "examples"):
        places += [
            path for path in (root / folder).rglob("*.*") if path.suffix in {".py", ".md", ".toml"}
        ]
    assert [path for path in places if wrong.search(path.read_text(encoding="utf-8"))] == []
