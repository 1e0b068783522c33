"""The verbs as a whole: every one is there, its help can be read, its exit codes are documented."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rlprobe
from rlprobe import cli, config, exit_codes
from rlprobe.findings import Severity

FOLDER = Path(cli.__file__).parent


def shown(*words: str) -> str:
    """What a command prints, in a process whose terminal has 80 columns."""
    code = "import sys; from rlprobe.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"COLUMNS": "80", "PATH": "", "HOME": "/"},
    )
    return done.stdout


def test_verbs_are_the_modules_that_define_one() -> None:
    def is_verb(path: Path) -> bool:
        names = {getattr(node, "name", "") for node in ast.parse(path.read_text()).body}
        return path.stem in names

    assert set(cli.VERBS.values()) == {path.stem for path in FOLDER.glob("*.py") if is_verb(path)}


def test_the_list_of_verbs_cuts_no_summary() -> None:
    lines = shown("--help").splitlines()
    summaries = dict(line.split(None, 1) for line in lines[lines.index("Commands:") + 1 :])
    assert list(summaries) == list(cli.VERBS)
    for verb, module in cli.VERBS.items():
        tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
        (function,) = [node for node in tree.body if getattr(node, "name", "") == module]
        assert isinstance(function, ast.FunctionDef)
        summary = (ast.get_docstring(function) or "").splitlines()[0]
        assert summaries[verb] == summary


def test_the_version_says_which_program_it_is() -> None:
    line = shown("--version")
    assert line.startswith(f"rlprobe {rlprobe.__version__} ({cli.PURPOSE})")
    assert line.endswith(f" from {Path(rlprobe.__file__).parent}\n")


@pytest.mark.parametrize("verb", ["scan", "gate", "record"])
def test_help_names_every_word_of_fail_on(verb: str) -> None:
    printed = " ".join(shown(verb, "--help").split())
    words = [*(severity.label for severity in reversed(Severity)), "never"]
    assert f"{', '.join(words[:-1])} or {words[-1]}" in printed
    for word in words:
        config.parse_fail_on(word)


def test_every_exit_code_has_a_meaning() -> None:
    codes = [value for value in vars(exit_codes).values() if isinstance(value, int)]
    assert sorted(codes) == sorted(exit_codes.MEANINGS)
