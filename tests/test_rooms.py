"""The rooms as their own pages describe them, what imports whom in a circle, what nobody calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from rlprobe.cli import VERBS
from rlprobe.importers.formats import formats
from rlprobe.taps.hooks import HOOKS

ROOT = Path(__file__).parents[1]
ROOMS = sorted(path.parent for path in (ROOT / "rlprobe").rglob("__init__.py"))
LIVE = ("rlprobe", "detectors", "benchmarks", "examples")
LISTED = re.compile(r"^(\w+(?:, \w+)*) {2,}\S", re.MULTILINE)
# Found by name: verbs by the command line, reporters and importers by the format's name.
CALLED_BY_NAME = {*((f"rlprobe.cli.{module}", module) for module in VERBS.values())}
CALLED_BY_NAME |= {(f"rlprobe.report.{name}", "reporter") for name in ("text", "json", "markdown")}
CALLED_BY_NAME.add(("rlprobe.integrations.autoattach", "patch"))
CALLED_BY_NAME |= {(f"rlprobe.taps.packages.{name}", "install") for name in HOOKS.values()}
CALLED_BY_NAME |= {(type(item).__module__, type(item).__name__) for item in formats()}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def trees(*folders: str) -> dict[str, ast.Module]:
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


# --- the list of a room ---------------------------------------------------------------------


def contents(room: Path) -> set[str]:
    """Modules and rooms in a room."""
    inside = {path.stem for path in room.glob("*.py")} - {"__init__", "__main__"}
    return inside | {path.parent.name for path in room.glob("*/__init__.py")}


@pytest.mark.parametrize("room", ROOMS, ids=name_of)
def test_a_room_that_lists_its_files_lists_them_all_and_no_other(room: Path) -> None:
    tree = ast.parse((room / "__init__.py").read_text(encoding="utf-8"))
    text = ast.get_docstring(tree) or ""
    listed = {name for names in LISTED.findall(text) for name in names.split(", ")}
    assert listed <= contents(room), "a file that is not there"
    if listed:
        public = {name for name in contents(room) if not name.startswith("_")}
        assert public <= set(re.findall(r"\w+", text)), "a file that is not listed"


# --- circles --------------------------------------------------------------------------------


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below a node that runs some time: not what only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from executed(child)


def imported_from(module: str, node: ast.ImportFrom) -> str:
    """What `from … import` names, in full; a package's own name is that of its `__init__`."""
    if not node.level:
        return node.module or ""
    room = ROOT / Path(*module.split("."))
    above = node.level - (1 if room.is_dir() else 0)
    parts = module.split(".")[: len(module.split(".")) - above]
    return ".".join([*parts, *([node.module] if node.module else [])])


def imports(module: str, tree: ast.Module, known: set[str]) -> set[str]:
    """Modules that a module imports, at once or inside a function."""
    names: set[str] = set()
    for node in executed(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            place = imported_from(module, node)
            inside = {f"{place}.{alias.name}" for alias in node.names}
            names |= (inside & known) or {place}
    return names & known


def test_no_module_imports_itself_by_a_detour() -> None:
    every = trees("rlprobe")
    graph = {name: imports(name, tree, set(every)) - {name} for name, tree in every.items()}
    assert any(graph.values())
    TopologicalSorter(graph).prepare()  # CycleError names the circle


def test_no_room_imports_itself_by_a_detour() -> None:
    every = trees("rlprobe")
    graph: dict[str, set[str]] = {}
    for name, tree in every.items():
        room, *_ = name.split(".")[1:] or [""]
        others = {other.split(".")[1] for other in imports(name, tree, set(every)) if "." in other}
        graph.setdefault(room, set()).update(others - {room})
    assert {"cli", "dev", "store"} <= set(graph)
    TopologicalSorter(graph).prepare()


# --- what nobody calls ----------------------------------------------------------------------


def used(module: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(module, name) of every name that a module reads, wherever it is defined."""
    homes: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            place = imported_from(module, node)
            for alias in node.names:
                homes[alias.asname or alias.name] = f"{place}.{alias.name}"
                yield place, alias.name
        elif isinstance(node, ast.Import):
            homes |= {alias.asname: alias.name for alias in node.names if alias.asname}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield module, node.id
        elif isinstance(node, ast.Attribute):
            place = ast.unparse(node.value)
            yield homes.get(place, place), node.attr


def defined(tree: ast.Module) -> Iterator[str]:
    """Names of module level that are not of the language's own."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        else:
            continue
        yield from (name for name in names if not name.startswith("__"))


def test_nothing_is_there_for_the_tests_alone() -> None:
    """A function that only tests call is a twin of what runs, or dead."""
    read = {pair for module, tree in trees(*LIVE).items() for pair in used(module, tree)}
    unread = {
        (module, name)
        for module, tree in trees("rlprobe").items()
        for name in defined(tree)
        if (module, name) not in read | CALLED_BY_NAME
    }
    assert unread == set()
