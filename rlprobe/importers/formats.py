"""Every format, in the order in which a file is offered to them.

A format is an `Importer` in a module of one of the wings, which are the packages beside this file.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rlprobe.importers.importer import Importer


@functools.cache
def formats() -> tuple[Importer, ...]:
    """One importer of each format; the first that recognises a file reads it."""
    kinds = [kind for module in _modules() for kind in _importers_in(module)]
    return tuple(kind() for kind in sorted(kinds, key=lambda kind: (kind.priority, kind.name)))


def named(name: str) -> Importer | None:
    """The importer of a format, by the name that reports have for it."""
    return next((importer for importer in formats() if importer.name == name), None)


def _modules() -> Iterator[ModuleType]:
    here = Path(__file__).parent
    for wing in pkgutil.iter_modules([str(here)], f"{__package__}."):
        if wing.ispkg:
            place = import_module(wing.name)
            for module in pkgutil.iter_modules(place.__path__, f"{wing.name}."):
                if _may_hold_importers(here.joinpath(*module.name.split(".")[-2:])):
                    yield import_module(module.name)


def _may_hold_importers(module: Path) -> bool:
    """Whether a module's text names the base class: most of a wing is loaded only to read a log."""
    try:
        return b"Importer)" in module.with_suffix(".py").read_bytes()
    except OSError:  # no source is installed
        return True


def _importers_in(module: ModuleType) -> Iterator[type[Importer]]:
    for value in vars(module).values():
        if (
            isinstance(value, type)
            and issubclass(value, Importer)
            and value.__module__ == module.__name__
        ):
            yield value
