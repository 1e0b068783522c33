"""Files of one directory -> logs: a rotated log is one, and so are a process's two outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlprobe.importers import compression
from rlprobe.importers.membership import Rotation, errors_beside, rotation_of


@dataclass(frozen=True)
class Log:
    """One log.

    Attributes:
        path: the file that names it: of a rotated log the newest.
        parts: all files whose text it is, the oldest first.
        errors: what the same process wrote to its error output.
    """

    path: Path
    parts: tuple[Path, ...]
    errors: Path | None = None


def logs_of(paths: Sequence[Path]) -> Iterator[Log]:
    """The logs that these files are, in the same order."""
    folders: dict[Path, dict[str, Path]] = {}
    for path in paths:
        folders.setdefault(path.parent, {})[_plain(path.name)] = path
    older: dict[Path, tuple[Path, ...]] = {}
    taken: set[Path] = set()
    for names in folders.values():
        for newest, parts in _rotated(names):
            older[newest] = parts
            taken.update(parts[:-1])
    for path in paths:
        if path in taken:
            continue
        beside = errors_beside(path.name)
        errors = folders[path.parent].get(beside) if beside else None
        if errors is not None and errors not in taken and errors not in older:
            taken.add(errors)
        else:
            errors = None
        yield Log(path, older.get(path, (path,)), errors)


def _plain(name: str) -> str:
    """A name without the suffix of a compression."""
    for suffix in compression.SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _rotated(names: Mapping[str, Path]) -> Iterator[tuple[Path, tuple[Path, ...]]]:
    """The newest part of each rotated log of a directory, and all of its parts in order."""
    parts: dict[str, list[tuple[Rotation, Path]]] = {}
    for name, path in names.items():
        rotation = rotation_of(name)
        if rotation is not None and f"{rotation.log}.0" not in names:
            parts.setdefault(rotation.log, []).append((rotation, path))
    for log, members in parts.items():
        newest = names.get(log)
        certain = [(item, path) for item, path in members if item.sure or newest is not None]
        ordered = _in_order(certain) + ([newest] if newest is not None else [])
        if len(ordered) > 1:
            yield ordered[-1], tuple(ordered)


def _in_order(members: Iterable[tuple[Rotation, Path]]) -> list[Path]:
    return [path for _, path in sorted(members, key=lambda member: (member[0].age, member[1]))]
