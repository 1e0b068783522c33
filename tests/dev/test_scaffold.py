"""The scaffold writes a detector that passes the tests of the catalogue as it is."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rlprobe.dev.scaffold import new_detector
from rlprobe.errors import UsageError

ROOT = Path(__file__).parents[2]
NO_CACHE = shutil.ignore_patterns("__pycache__", "*.toml")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree with an empty catalogue, laid out as it is installed."""
    shutil.copytree(ROOT / "rlprobe", tmp_path / "rlprobe", ignore=NO_CACHE)
    shutil.copytree(ROOT / "schemas", tmp_path / "rlprobe" / "schemas")
    shutil.copytree(ROOT / "tests" / "detectors", tmp_path / "tests" / "detectors", ignore=NO_CACHE)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "detectors").mkdir()
    shutil.copy(ROOT / "detectors" / "__init__.py", tmp_path / "detectors")
    (tmp_path / "rlprobe" / "detectors").symlink_to(tmp_path / "detectors")
    return tmp_path


def run(tree: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_new_detector_passes_the_catalogue_tests(tree: Path) -> None:
    code, cases = new_detector("reward-plateau", tree)
    assert code == tree / "detectors" / "reward_plateau.py"
    assert cases == tree / "tests" / "detectors" / "reward_plateau.toml"
    run(tree, "pytest", "-q", "-p", "no:cacheprovider", "tests/detectors/test_cases.py")


def test_the_next_step_that_is_printed_succeeds(tree: Path) -> None:
    targets = {
        "docs": ["rlprobe.dev", "docs"],
        "test": ["pytest", "-q", "-p", "no:cacheprovider", "tests/test_docs.py", "-k", "fresh"],
    }
    shutil.copy(ROOT / "tests" / "test_docs.py", tree / "tests")
    (tree / "docs").mkdir()
    run(tree, *targets["docs"])
    printed = run(tree, "rlprobe.dev", "new-detector", "REWARD_PLATEAU")
    (words,) = re.findall(r"`make ([a-z ]+)`", printed)
    for target in words.split():
        run(tree, *targets[target])


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff is not installed")
def test_a_new_detector_is_formatted(tree: Path) -> None:
    code, _ = new_detector("REWARD_PLATEAU", tree)
    run(tree, "ruff", "check", "--no-cache", str(code))
    run(tree, "ruff", "format", "--no-cache", "--check", str(code))


@pytest.mark.parametrize("name", ["", "kl blowup", "1KL", "_KL", "KL__X", "../KL"])
def test_what_is_no_id(tree: Path, name: str) -> None:
    with pytest.raises(UsageError, match="not an id"):
        new_detector(name, tree)


def test_nothing_is_overwritten(tree: Path) -> None:
    new_detector("REWARD_PLATEAU", tree)
    with pytest.raises(UsageError, match="already"):
        new_detector("REWARD_PLATEAU", tree)


def test_a_folder_that_is_no_source_tree(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        new_detector("REWARD_PLATEAU", tmp_path)
