"""Runs at the start of every Python process below `rlprobe record`.

This may be any Python, of any version and any environment: standard library only, and no syntax
that Python 3.6 does not know (annotations are quoted for it). It costs one small file and one entry
in `sys.meta_path`; it never raises and never prints. Failures go into the status directory.
"""

import os
import sys

TYPE_CHECKING = False  # importing typing would cost more than all the rest
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs too much
_OLDEST = (3, 11)


class _TrainerHook:
    """A finder that finds nothing itself: it looks on when `transformers.trainer` is loaded."""

    name = "transformers.trainer"

    def __init__(self) -> None:
        self.busy = False

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "ModuleSpec | None":
        """Let the others find the module, and hook into its loader."""
        if name != self.name or self.busy:
            return None
        self.busy = True
        try:
            from importlib.util import find_spec

            spec = find_spec(name)
            if spec is not None and spec.loader is not None:
                self.hook(spec.loader)
        except Exception as error:
            _report(error)
            return None
        else:
            return spec
        finally:
            self.busy = False

    def hook(self, loader: "Any") -> None:
        """Patch the module right after it was executed."""
        execute = loader.exec_module

        def exec_module(module: "ModuleType") -> None:
            execute(module)
            try:
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                from rlprobe.integrations import autoattach

                autoattach.patch(module)
            except Exception as error:
                _report(error)

        loader.exec_module = exec_module


def _start() -> None:
    """Look whether rlprobe is here, and wait for the Trainer."""
    if "RLPROBE_RUN" not in os.environ:
        return
    if sys.version_info < _OLDEST:
        _fail("Python {}.{} is older than 3.11".format(*sys.version_info[:2]))
        return
    from importlib.util import find_spec

    spec = find_spec("rlprobe")  # looks where it is, and does not import it
    if spec is None or not spec.origin:
        _fail("rlprobe is not installed in this environment", missing="yes")
    elif _foreign(spec.origin):
        _fail("another program called rlprobe", foreign=_foreign(spec.origin))
    else:
        _write({"rlprobe": _version(spec.origin), "error": None})
        sys.meta_path.insert(0, _TrainerHook())


def _foreign(origin: "str | None") -> "str | None":
    """The place of a program that is called rlprobe and is not this one; None if it is this one.

    Not by the path: the command may run in an environment with a copy of its own.
    """
    if not origin:
        return None
    package = os.path.dirname(origin)  # noqa: PTH120
    ours = os.path.join(package, "integrations", "autoattach", "sitecustomize.py")  # noqa: PTH118
    if os.path.isfile(ours):  # noqa: PTH113
        return None
    return package if origin.endswith("__init__.py") else origin


def _version(origin: str) -> str:
    """The version of the rlprobe that is there."""
    path = os.path.join(os.path.dirname(origin), "_version.py")  # noqa: PTH118, PTH120
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        for line in file:
            if line.startswith("__version__"):
                return line.partition("=")[2].strip().strip("\"'")
    return "?"


def _report(error: Exception) -> None:
    # Beside the script, or put into sys.path later, there may be another rlprobe than at the start.
    origin = getattr(sys.modules.get("rlprobe"), "__file__", None)
    _fail(f"{type(error).__name__}: {error}", foreign=_foreign(origin))


def _fail(reason: str, **more: "str | None") -> None:
    """Say that this process is not recorded from the inside, and why."""
    _write(dict(more, rlprobe=None, error=reason))


def _write(content: "dict[str, str | None]") -> None:
    folder = os.environ.get("RLPROBE_STATUS")
    if not folder:
        return
    try:
        content["executable"] = sys.executable
        pairs = [f"{_json(key)}: {_json(content[key])}" for key in sorted(content)]
        path = os.path.join(folder, f"python-{os.getpid()}.json")  # noqa: PTH118
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write("{" + ", ".join(pairs) + "}\n")
    except Exception:  # noqa: S110 - there is nobody left to tell
        pass


def _json(value: "str | None") -> str:
    """A string or None as JSON; importing `json` would cost more than all the rest."""
    if value is None:
        return "null"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else " " for c in text) + '"'


def _chain() -> None:
    """Run the sitecustomize that would have been imported if this one were not here."""
    sys.path[:] = [
        entry
        for entry in sys.path
        if os.path.abspath(entry) != _FOLDER  # noqa: PTH100
    ]
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _chain()
finally:
    try:
        _start()
    except Exception as failure:
        _report(failure)
