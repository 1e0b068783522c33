"""The walls of the house: who may import whom, and how large a room may grow."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BASE = {
    "environment",
    "redaction",
    "errors",
    "exit_codes",
    "numbers",
    "repetition",
    "order_statistics",
    "values",
    "findings",
    "_display",
    "_lazy",
    "_version",
    "_visible",
}
# room -> rooms it may import (besides itself and the base)
ALLOWED: dict[str, set[str]] = {
    "schema": set(),
    "naming": {"schema"},
    "counters": {"schema"},
    "nearest": {"schema", "naming"},
    "stats": set(),
    "detector": {"stats", "schema"},
    "rule": {"stats", "detector"},
    "catalog": {"detector"},
    "config": {"detector", "catalog"},
    "store": {"schema", "counters"},
    "recorder": {"schema", "naming", "store"},
    "importers": {"schema", "naming", "nearest", "counters", "store"},
    "taps": {"schema", "recorder"},
    "commands": set(),
    "launcher": {
        "schema",
        "naming",
        "store",
        "recorder",
        "importers",
        "integrations",
        "taps",
        "commands",
    },
    "doctor": {"store", "recorder", "integrations", "launcher", "taps", "commands"},
    "guards": set(),
    "integrations": {"schema", "store", "recorder", "guards", "taps"},
    "scan": {"schema", "stats", "detector", "catalog", "config", "store"},
    "gate": {"config"},
    "report": {
        "schema",
        "naming",
        "nearest",
        "stats",
        "detector",
        "catalog",
        "config",
        "store",
        "scan",
        "gate",
        "doctor",
    },
    "testing": {"schema", "detector", "catalog", "store", "scan"},
    "demo": {"recorder"},
    "_api": {"importers", "config", "store", "scan"},
    "cli": {
        "catalog",
        "config",
        "store",
        "importers",
        "launcher",
        "doctor",
        "scan",
        "gate",
        "report",
        "demo",
    },
    "dev": {
        "schema",
        "naming",
        "detector",
        "catalog",
        "config",
        "importers",
        "guards",
        "integrations",
        "cli",
    },
}
DETECTORS_MAY_IMPORT = {
    "rlprobe.detector",
    "rlprobe.findings",
    "rlprobe.repetition",
    "rlprobe.rule",
    "rlprobe.stats",
    "rlprobe.values",
}


def modules(folder: str) -> Iterator[Path]:
    yield from sorted((ROOT / folder).rglob("*.py"))


def imported(path: Path) -> set[str]:
    return imports_of(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports_of(nodes: Iterable[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def rooms_of(names: set[str]) -> set[str]:
    parts = (name.split(".") for name in names if name.startswith("rlprobe."))
    known = {*ALLOWED, "detectors", "schemas"}
    return {part[1] for part in parts if part[1] in known}


def test_every_module_is_in_a_room_or_belongs_to_the_base() -> None:
    places = {path.name.removesuffix(".py") for path in (ROOT / "rlprobe").glob("*.py")}
    places |= {path.parent.name for path in (ROOT / "rlprobe").glob("*/__init__.py")}
    assert places - {"__init__", "__main__"} == {*ALLOWED, *BASE}


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_rooms_import_only_what_lies_under_them(room: str) -> None:
    place = ROOT / "rlprobe" / room
    paths = list(modules(f"rlprobe/{room}")) if place.is_dir() else [place.with_suffix(".py")]
    for path in paths:
        strangers = rooms_of(imported(path)) - ALLOWED[room] - {room}
        assert not strangers, f"{path.relative_to(ROOT)} may not import {sorted(strangers)}"


def test_detectors_import_only_what_authors_are_promised() -> None:
    for path in modules("detectors"):
        ours = {name for name in imported(path) if name.split(".")[0] == "rlprobe"}
        modules_ = {name for name in ours if name.count(".") == 1}
        assert modules_ <= DETECTORS_MAY_IMPORT, path.name
        others = {name.split(".")[0] for name in imported(path)} - {"rlprobe"}
        assert others - set(sys.stdlib_module_names) <= {"numpy", "scipy"}, path.name


def test_detectors_import_scipy_only_where_they_use_it() -> None:
    for path in modules("detectors"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        inside = {id(node) for function in functions for node in ast.walk(function)}
        at_once = imports_of(node for node in ast.walk(tree) if id(node) not in inside)
        assert not any(name.split(".")[0] == "scipy" for name in at_once), path.name


def test_a_scan_of_a_healthy_run_loads_no_scipy(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    rows = ({"step": step, "loss": 2.0, "step_time": 10 + step % 3} for step in range(200))
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    code = "import sys; from rlprobe import cli; cli.main(); print('scipy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, "scan", str(log)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split()[-1] == "False"


def test_detectors_and_schemas_are_imported_by_nobody_by_name() -> None:
    for folder in ("rlprobe", "detectors", "tests", "benchmarks"):
        for path in modules(folder):
            names = imported(path)
            assert not any(
                name.startswith(("rlprobe.detectors", "rlprobe.schemas")) for name in names
            )
            assert not names & {"detectors", "schemas"}, path


def test_only_the_store_opens_parquet() -> None:
    for path in modules("rlprobe"):
        if path.is_relative_to(ROOT / "rlprobe" / "store"):
            continue
        assert "pyarrow.parquet" not in imported(path), path
        assert "duckdb" not in imported(path), path


def test_importing_rlprobe_loads_nothing_heavy() -> None:
    heavy = ["duckdb", "scipy", "rich", "typer", "torch", "pyarrow", "numpy", "pandas"]
    code = f"import sys, rlprobe; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_recording_loads_no_pandas_and_no_scan() -> None:
    code = """
import sys, tempfile, rlprobe
with rlprobe.Recorder(tempfile.mkdtemp()) as recorder:
    recorder.step(1, loss=1.0)
    recorder.samples(1, prompts=["p"], completions=["c"])
heavy = ["pandas", "duckdb", "scipy", "rich", "typer", "rlprobe.scan", "rlprobe.catalog"]
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


MOST_LINES = 400
MOST_FUNCTION_LINES = 60


@pytest.mark.parametrize("folder", ["rlprobe", "detectors"])
def test_files_and_functions_stay_small(folder: str) -> None:
    for path in modules(folder):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= MOST_LINES, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                assert length <= MOST_FUNCTION_LINES, f"{path}: {node.name} has {length} lines"


def test_every_module_says_what_it_is_for() -> None:
    for folder in ("rlprobe", "detectors", "schemas"):
        for path in modules(folder):
            assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path
