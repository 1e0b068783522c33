"""The page of what is recorded, and the table that it is made from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from rlprobe.dev import recording_page

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "integrations" / "scripts"
ROWS = recording_page.rows()
KEYS = {
    "framework",
    "package",
    "recorded",
    "how",
    "scripts",
    "launcher",
    "single",
    "handed",
    "logging",
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["framework"])
def test_each_row_says_what_is_installed_and_which_scripts_are_run(row: dict[str, object]) -> None:
    assert set(row) <= KEYS
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    installed = tomllib.loads(text)["dependency-groups"]["integration"]
    scripts = row.get("scripts", [])
    assert isinstance(scripts, list)
    assert (row["package"] in installed) is bool(scripts)
    for script in scripts:
        assert (SCRIPTS / script.split()[0]).is_file()


def test_every_script_is_in_the_table_or_imported() -> None:
    named = {
        script.split()[0]
        for row in ROWS
        for script in (*row.get("scripts", ()), *row.get("logging", ()))
    }
    there = {path.name for path in SCRIPTS.glob("*.py")}
    assert there - named == {"outcome.py"}


def test_scripts_know_nothing_of_us() -> None:
    for path in SCRIPTS.glob("*.py"):
        assert "rlprobe" not in path.read_text(encoding="utf-8").lower(), path


def test_the_page_tells_how_each_row_is_tested() -> None:
    lines = recording_page.page().splitlines()
    table = [re.split(r" \| ", line.strip("| ")) for line in lines if line.startswith("| ")]
    told = {cells[0]: cells[3] for cells in table[2:]}
    assert list(told) == [row["framework"] for row in ROWS]
    assert told["MLflow"] == "`mlflow-skinny>=2.14`, against what it stored"
    assert told["verl"].startswith("the logging of `verl==0.9.1`")
    assert told["NeMo-RL"].startswith("its published calls")
    assert told["Ray Train"].endswith("against what it was handed")
    assert told["tensorboardX"].endswith("rounded to float32 as that is")
