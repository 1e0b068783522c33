"""Finds detectors: the `detectors/` folder, the entry points of other packages, `--detectors DIR`.

The only place that names them. The folder is loaded with `import_module`, because type checkers
cannot follow its packaging.
"""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rlprobe.detector import Detector
from rlprobe.errors import DetectorError

ENTRY_POINTS = "rlprobe.detectors"


def load(folders: Sequence[Path] = ()) -> Mapping[str, type[Detector]]:
    """Every detector by id: our own, those of other packages, those in `folders`; sorted by id.

    Raises:
        DetectorError: a file cannot be imported, holds no detector, or repeats an id.
    """
    by_id: dict[str, type[Detector]] = {}
    for module in _modules(folders):
        for detector in _detectors_in(module):
            if by_id.setdefault(detector.id, detector) is not detector:
                raise DetectorError(
                    f"Couldn't load detector '{detector.id}' from '{module.__name__}': "
                    "the id is taken",
                    hint="Give it another id.",
                )
    return dict(sorted(by_id.items()))


def get(detector_id: str, folders: Sequence[Path] = ()) -> type[Detector]:
    """The detector with this id, in any spelling of case and dashes; DetectorError if unknown."""
    import difflib

    known = load(folders)
    wanted = detector_id.upper().replace("-", "_")
    if wanted in known:
        return known[wanted]
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    hint = f"Did you mean {', '.join(near)}?" if near else "`rlprobe explain` lists them."
    raise DetectorError(f"Couldn't find detector '{detector_id}': no such id", hint=hint)


def _modules(folders: Sequence[Path]) -> Iterator[ModuleType]:
    try:
        package = import_module("rlprobe.detectors")
    except ModuleNotFoundError as error:
        raise DetectorError(
            "Couldn't load the catalogue 'rlprobe.detectors': it is not beside this copy of "
            "rlprobe (a source tree that is not installed?)",
            hint="Install it (`pip install -e .`), or run from another directory.",
        ) from error
    for info in pkgutil.iter_modules(package.__path__):
        yield import_module(f"rlprobe.detectors.{info.name}")
    yield from _entry_points()
    for folder in folders:
        yield from _folder(folder)


def _entry_points() -> Iterator[ModuleType]:
    if not _offered():
        return
    from importlib.metadata import entry_points

    for entry in entry_points(group=ENTRY_POINTS):
        try:
            yield import_module(entry.module)
        except Exception as error:
            raise DetectorError(
                f"Couldn't load detector entry point '{entry.value}': {error}"
            ) from error


def _offered() -> bool:
    """Whether some installed package may have detectors.

    Reads as little as that takes: to ask the interpreter costs a third of the scan of a small log.
    """
    group = f"[{ENTRY_POINTS}]".encode()
    for place in map(Path, sys.path):
        if place.is_file():  # an archive, which is not looked into
            return True
        lists = (
            *place.glob("*.dist-info/entry_points.txt"),
            *place.glob("*.egg-info/entry_points.txt"),
        )
        if any(group in path.read_bytes() for path in lists):
            return True
    return False


def _folder(folder: Path) -> Iterator[ModuleType]:
    if not folder.is_dir():
        raise DetectorError(f"Couldn't load detectors from '{folder}': not a directory")
    for path in sorted(folder.glob("*.py")):
        if path.name.startswith("_"):
            continue
        spec = importlib.util.spec_from_file_location(f"rlprobe_user_detectors.{path.stem}", path)
        if spec is None or spec.loader is None:
            continue
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # where dataclasses look up the annotations of its classes
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[spec.name]
            raise DetectorError(f"Couldn't load detector file '{path}': {error}") from error
        yield module


def _detectors_in(module: ModuleType) -> list[type[Detector]]:
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Detector)
        and value is not Detector
        and value.__module__ == module.__name__
        and not value.__name__.startswith("_")
    ]
    if not own:
        raise DetectorError(f"Couldn't find a detector in '{module.__name__}': no Detector class")
    return own
