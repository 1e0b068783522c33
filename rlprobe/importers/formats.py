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
    for wing in pkgutil.iter_modules([str(Path(__file__).parent)], f"{__package__}."):
        if wing.ispkg:
            place = import_module(wing.name)
            for module in pkgutil.iter_modules(place.__path__, f"{wing.name}."):
                yield import_module(module.name)


def _importers_in(module: ModuleType) -> Iterator[type[Importer]]:
    for value in vars(module).values():
        if (
            isinstance(value, type)
            and issubclass(value, Importer)
            and value.__module__ == module.__name__
        ):
            yield value
