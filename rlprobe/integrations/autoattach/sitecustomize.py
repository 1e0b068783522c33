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
_OLDEST_FOR_TAPS = (3, 8)
# What records more than what is logged, where there is a recorder.
_FROM_INSIDE = {"transformers": ("rlprobe.integrations.autoattach", "patch")}


class _Hook:
    """A finder that finds nothing itself: it looks on when a module is loaded that is tapped.

    Args:
        taps: what taps a module, by the module's name.
        load: gives the package of the taps.
    """

    def __init__(self, taps: "dict[str, str]", load: "Any") -> None:
        self.taps = taps
        self.load = load
        self.busy = False

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "ModuleSpec | None":
        """Let the others find the module, and hook into its loader."""
        if name not in self.taps or self.busy:
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
        """Tap the module right after it was executed."""
        execute = loader.exec_module

        def exec_module(module: "ModuleType") -> None:
            execute(module)
            if module.__name__ not in self.taps:  # a loader of several modules
                return
            try:
                self.install(module, self.taps[module.__name__])
            except Exception as error:
                _report(error)

        loader.exec_module = exec_module

    def install(self, module: "ModuleType", tap: str) -> None:
        """Call what taps the module: `wandb`, one of ours, or `package.module:function`."""
        from importlib import import_module

        place, colon, function = tap.partition(":")
        if not colon:
            taps = self.load()
            recorder = import_module(taps + ".place").has_recorder()
            inside = recorder and _FROM_INSIDE.get(tap)
            place, function = inside or (taps + ".packages." + place, "install")
        getattr(import_module(place), function)(module)


def _start() -> None:
    """Look whether rlprobe is here, and wait for what can be tapped."""
    if "RLPROBE_RUN" not in os.environ:
        return
    pairs = [pair.partition("=") for pair in os.environ.get("RLPROBE_TAPS", "").split(",") if pair]
    taps = {name: tap for name, _, tap in pairs}
    origin = _why_outside() if sys.version_info >= _OLDEST else _too_old()
    load = _ours if origin else _by_path
    if taps and sys.version_info >= _OLDEST_FOR_TAPS:
        sys.meta_path.insert(0, _Hook(taps, load))


def _too_old() -> str:
    """Say that this Python is older than rlprobe can be."""
    _fail("Python {}.{} is older than 3.11".format(*sys.version_info[:2]))
    return ""


def _why_outside() -> str:
    """The place of rlprobe in this environment; empty, and said why, if it is not there."""
    from importlib.util import find_spec

    spec = find_spec("rlprobe")  # looks where it is, and does not import it
    if spec is None or not spec.origin:
        _fail("rlprobe is not installed in this environment", missing="yes")
        return ""
    if _foreign(spec.origin):
        _fail("another program called rlprobe", foreign=_foreign(spec.origin))
        return ""
    _write({"rlprobe": _version(spec.origin), "error": None})
    return spec.origin


def _ours() -> str:
    """The taps of the rlprobe of this environment; beside us, if those there are none or older."""
    try:
        import rlprobe.taps.hub
    except ImportError as error:
        _report(error)
        return _by_path()
    return rlprobe.taps.__name__


def _by_path() -> str:
    """The taps that lie beside us: they need nothing but the standard library."""
    name = "_rlprobe_taps"
    if name not in sys.modules:
        from importlib.util import module_from_spec, spec_from_file_location

        folder = os.path.join(os.path.dirname(os.path.dirname(_FOLDER)), "taps")  # noqa: PTH118, PTH120
        path = os.path.join(folder, "__init__.py")  # noqa: PTH118
        spec = spec_from_file_location(name, path, submodule_search_locations=[folder])
        if spec is None or spec.loader is None:
            raise ImportError(path)
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return name


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
