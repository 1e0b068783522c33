"""`jupyter execute`, `nbconvert --execute`, `papermill`: which Python runs a notebook's cells."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_MOST_TEXT = 50_000_000
_PLAIN_NAMES = ("python", "python3")


def executed(name: str, words: Sequence[str]) -> str | None:
    """The notebook that a program executes; None if it does not execute one.

    Args:
        name: the program's own name.
        words: its arguments.
    """
    named = next((word for word in words if word.endswith(".ipynb") and word[0] != "-"), None)
    if name == "jupyter" and words[:1] and words[0] in ("execute", "run", "nbconvert"):
        name = f"jupyter-{words[0]}"
    if name in ("jupyter-execute", "papermill", "jupyter-run"):
        return named
    return named if name == "jupyter-nbconvert" and "--execute" in words else None


def document(path: Path) -> dict[str, Any]:
    """A notebook as it is stored; {} if it cannot be read."""
    try:
        if path.stat().st_size > _MOST_TEXT:
            return {}
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def code_of(content: Mapping[str, Any]) -> str:
    """The code of all cells, one after another, without the commands of IPython."""
    cells = content.get("cells")
    sources = []
    for cell in cells if isinstance(cells, list) else []:
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source")
        text = "".join(map(str, source)) if isinstance(source, list) else str(source or "")
        if not text.lstrip().startswith("%%"):
            sources.append("\n".join(map(_without_magic, text.split("\n"))))
    return "\n".join(sources)


def _without_magic(line: str) -> str:
    bare = line.lstrip()
    indent = line[: len(line) - len(bare)]
    return f"{indent}pass" if bare.startswith(("%", "!", "?")) else line


def kernel_of(content: Mapping[str, Any]) -> str:
    """The name of the kernel that a notebook asks for."""
    metadata = content.get("metadata")
    spec = metadata.get("kernelspec") if isinstance(metadata, dict) else None
    name = spec.get("name") if isinstance(spec, dict) else None
    return str(name or "python3")


def kernel_python(name: str, prefix: Path, environ: Mapping[str, str]) -> tuple[str | None, bool]:
    """The Python of a kernel, and whether its specification was there.

    Args:
        name: of the kernel.
        prefix: of the environment that `jupyter` is in.
        environ: its environment.

    Returns:
        None where the kernel runs in the Python of `jupyter` itself.
    """
    home = Path(environ.get("HOME", "/"))
    places = [Path(entry) for entry in environ.get("JUPYTER_PATH", "").split(":") if entry]
    places += [home / ".local/share/jupyter", home / "Library/Jupyter", prefix / "share/jupyter"]
    places += [Path("/usr/local/share/jupyter"), Path("/usr/share/jupyter")]
    for place in places:
        spec = document(place / "kernels" / name / "kernel.json")
        argv = spec.get("argv")
        if isinstance(argv, list) and argv:
            return (None if argv[0] in _PLAIN_NAMES else str(argv[0])), True
    return None, name in _PLAIN_NAMES
