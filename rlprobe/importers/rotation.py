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
    errors = _errors(folders, taken | set(older))
    taken.update(errors.values())
    for path in paths:
        if path not in taken:
            yield Log(path, older.get(path, (path,)), errors.get(path))


def _errors(folders: Mapping[Path, Mapping[str, Path]], rotated: set[Path]) -> dict[Path, Path]:
    """The error output beside each file of output that has one."""
    beside: dict[Path, Path] = {}
    for names in folders.values():
        for path in names.values():
            name = errors_beside(path.name)
            errors = names.get(name) if name else None
            if errors is not None and errors not in rotated:
                beside[path] = errors
    return beside


def older_beside(path: Path) -> list[str]:
    """Parts of a log that lie beside its newest one, and were rotated away last."""
    names = (f"{path.name}.1{suffix}" for suffix in ("", *compression.SUFFIXES))
    return [name for name in names if path.with_name(name).is_file()]


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
