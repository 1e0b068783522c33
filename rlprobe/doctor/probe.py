"""Asked of a Python that a command would start, which runs this file.

Standard library only, and no syntax that Python 3.6 does not know. It imports no package: it looks
where they are. Arguments: a mark to print before the answer, and the names of packages as JSON.
"""

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _spec(name: "str") -> "Any":
    try:
        from importlib.util import find_spec

        return find_spec(name)
    except Exception:
        return None


def _origin(name: "str") -> "str | None":
    spec = _spec(name)
    if spec is None:
        return None
    return spec.origin or (list(spec.submodule_search_locations or ()) or [None])[0] or "built-in"


def _version(names: "list[str]") -> "str | None":
    try:
        from importlib.metadata import version
    except ImportError:
        return None
    for name in names:
        try:
            return version(name)
        except Exception:  # noqa: S112 - the next name
            continue
    return None


def _hook(folder: "str") -> "Any":
    """What the hook left in the status folder about this very process."""
    path = os.path.join(folder, f"python-{os.getpid()}.json")  # noqa: PTH118
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            return json.load(file)
    except Exception:
        return None


def _answer(asked: "dict[str, Any]") -> "dict[str, Any]":
    if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):  # noqa: PTH100, PTH120
        sys.path[0] = asked["beside"]  # where Python would look first
    packages = {}
    for name, names in asked["packages"].items():
        origin = _origin(name)
        if origin is not None:
            packages[name] = {"origin": origin, "version": _version(names)}
    modules = {}
    for name in ("sitecustomize", "usercustomize"):
        modules[name] = getattr(sys.modules.get(name), "__file__", None)
    return {
        "executable": sys.executable,
        "version": list(sys.version_info[:3]),
        "implementation": getattr(getattr(sys, "implementation", None), "name", "cpython"),
        "frozen": bool(getattr(sys, "frozen", False)),
        "hook": _hook(asked["status"]),
        "customize": modules,
        "packages": packages,
        "path": [entry for entry in sys.path if isinstance(entry, str)],
    }


if __name__ == "__main__":
    sys.stdout.write(sys.argv[1] + json.dumps(_answer(json.loads(sys.argv[2]))) + "\n")
