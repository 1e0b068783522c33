"""The public names: all there is to see, importable, and never one thing or another by turns."""

from __future__ import annotations

import ast
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rlprobe
from rlprobe.config import Config
from rlprobe.errors import InputError, UsageError

ROOT = Path(__file__).parents[1]
PUBLIC_ROOMS = {
    "detector",
    "errors",
    "findings",
    "guards",
    "integrations",
    "rule",
    "stats",
    "testing",
}
INNER_ROOMS = {
    "catalog",
    "cli",
    "commands",
    "config",
    "counters",
    "demo",
    "detectors",
    "dev",
    "doctor",
    "environment",
    "exit_codes",
    "gate",
    "importers",
    "launcher",
    "naming",
    "nearest",
    "numbers",
    "order_statistics",
    "recorder",
    "redaction",
    "repetition",
    "report",
    "scan",
    "schema",
    "schemas",
    "store",
    "taps",
    "values",
}

# Every module but those that act when imported: a program's start, and the hook of `record`.
EVERYTHING = """
import importlib, json, pkgutil, types, rlprobe
for module in pkgutil.walk_packages(rlprobe.__path__, "rlprobe."):
    if module.name.rpartition(".")[2] in {"__main__", "sitecustomize"}:
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:  # torch and transformers are optional
        assert not error.name.startswith("rlprobe"), error
for name in rlprobe.__all__:
    getattr(rlprobe, name)
print(json.dumps({
    name: isinstance(value, types.ModuleType)
    for name, value in vars(rlprobe).items() if not name.startswith("_")
}))
"""


def test_all_is_sorted_importable_and_small() -> None:
    assert list(rlprobe.__all__) == sorted(rlprobe.__all__)
    assert len(rlprobe.__all__) <= 12
    for name in rlprobe.__all__:
        assert getattr(rlprobe, name) is not None
        assert name in dir(rlprobe)


def test_nothing_is_to_be_seen_but_the_public_names_and_the_rooms() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EVERYTHING], capture_output=True, text=True, check=True, timeout=60
    )
    seen: dict[str, bool] = json.loads(done.stdout)
    names = {name for name, is_module in seen.items() if not is_module}
    assert names == set(rlprobe.__all__) - {"__version__"}
    assert {name for name in seen if seen[name]} <= PUBLIC_ROOMS | INNER_ROOMS


def test_every_room_is_declared_public_or_not() -> None:
    there = {module.name for module in pkgutil.iter_modules([str(ROOT / "rlprobe")])}
    there = {name for name in there if not name.startswith("_")}
    assert there | {"detectors", "schemas"} == PUBLIC_ROOMS | INNER_ROOMS
    assert not PUBLIC_ROOMS & INNER_ROOMS


def test_the_public_rooms_are_the_documented_ones() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `rlprobe\.(\w+)`", page, flags=re.MULTILINE)) == PUBLIC_ROOMS


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in (ROOT / "rlprobe").rglob("__init__.py")}), ids=str
)
def test_no_name_of_a_package_is_one_of_its_modules(folder: Path) -> None:
    """Else the name is a module or not, by what was imported before."""
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module != f"rlprobe.{folder.name}"
        for alias in node.names
    }
    names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    modules = {module.name for module in pkgutil.iter_modules([str(folder)])}
    assert not names & modules


def test_scan_is_a_room_whatever_was_imported_before() -> None:
    for first in ("import rlprobe.scan.engine", "pass"):
        code = f"{first}\nfrom rlprobe import scan\nprint(type(scan).__name__)"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout.strip() == "module"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Recorderr'"):
        _ = rlprobe.Recorderr


def log(path: Path, column: str = "grad_norm") -> Path:
    rows = [{"step": step, column: 1.0 if step < 150 else float("nan")} for step in range(1, 201)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_path_is_diagnosed_as_the_run_in_it(tmp_path: Path) -> None:
    path = log(tmp_path / "metrics.jsonl")
    (run,) = rlprobe.open(str(path))
    report = rlprobe.diagnose(path)
    for other in (rlprobe.diagnose(run), rlprobe.diagnose(str(path))):
        assert [finding.key for finding in other.findings] == [f.key for f in report.findings]
    assert [root.detector for root in report.roots()] == ["GRAD_PATHOLOGY"]
    assert report.roots()[0].excerpt is not None


def test_a_configuration_is_asked_for_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log(tmp_path / "metrics.jsonl")
    (tmp_path / "rlprobe.toml").write_text('select = ["TRUNCATION"]', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert rlprobe.diagnose(path).verdict == "fail"
    assert rlprobe.diagnose(path, config=Config.load()).verdict == "not_judged"


def test_several_runs_at_a_path_are_named_as_such_with_the_way_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with rlprobe.Recorder(tmp_path / "runs" / name) as recorder:
            recorder.step(1, loss=1.0)
    with pytest.raises(UsageError, match="it holds 2 runs") as caught:
        rlprobe.diagnose(tmp_path / "runs")
    assert "rlprobe.open" in caught.value.hint
    assert any("rlprobe.open" in note for note in caught.value.__notes__), "shown in a traceback"
    assert len([rlprobe.diagnose(run) for run in rlprobe.open(tmp_path / "runs")]) == 2


def test_a_path_without_anything_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing"):
        rlprobe.open(tmp_path / "nothing")
