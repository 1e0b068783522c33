"""Packed directories: zip and tar, the latter compressed or not -> their files, in a directory.

An archive is read as the directory that it holds. Its members are written to a temporary directory
of our own: plain files only (no links, no devices), under names that lead nowhere else, and no more
of them than is bearable. What no log is by its name and is large, such as weights, is passed over.
"""

from __future__ import annotations

import atexit
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, Self

from rlprobe.errors import InputError
from rlprobe.importers import compression
from rlprobe.importers.directory import may_be_log
from rlprobe.importers.source import Source
from rlprobe.store.run import Run
from rlprobe.store.table import TableRun
from rlprobe.values import Event, Problem

MOST_BYTES = 16 * 1024**3
MOST_MEMBERS = 100_000
_SMALL = 1024 * 1024  # up to which a member is unpacked whatever its name
_LONGEST_HEADER = 1024 * 1024
_LONGEST_NAME, _DEEPEST = 255, 40
_PIECE = 16 * 1024  # where an archive was cut, at most this much before it is lost
_DAMAGE = (*compression.DAMAGE, tarfile.TarError, zipfile.BadZipFile, NotImplementedError)
_MOST_NAMED = 20
_DESCRIBING = frozenset(
    {tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE}
    | {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}
)


@dataclass(frozen=True)
class Member:
    """One file of an archive; `refused`: why it is not to be unpacked."""

    name: str
    size: int
    open: Callable[[], IO[bytes]]
    refused: str = ""


def _zipped(file: BinaryIO) -> Iterator[Member]:
    archive = zipfile.ZipFile(file)
    for entry in archive.infolist():
        if entry.is_dir():
            continue
        kind = entry.external_attr >> 16
        plain = not kind or not stat.S_IFMT(kind) or stat.S_ISREG(kind)
        why = "" if plain else "a link or a device"
        yield Member(entry.filename, entry.file_size, partial(archive.open, entry), why)


def _tarred(file: BinaryIO) -> Iterator[Member]:
    archive = tarfile.open(fileobj=file, mode="r|", tarinfo=_Header)  # noqa: SIM115
    for entry in archive:
        if entry.isdir():
            continue
        plain = entry.isreg() and not entry.issparse()
        why = "" if plain else "a link, a device or a file with holes"
        yield Member(entry.name, entry.size, partial(_content, archive, entry), why)


def _content(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    content = archive.extractfile(entry)
    if content is None:
        raise tarfile.ReadError("a member without content")
    return content


class _Header(tarfile.TarInfo):
    """A header, refused where it announces a name or attributes that no file has.

    tarfile reads those as a whole, however long they say they are.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """A header by its bytes."""
        header = super().frombuf(buf, encoding, errors)
        if header.type in _DESCRIBING and header.size > _LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {header.size:,} bytes")
        return header


def _quoted(name: str) -> str:
    return f"'{name[:200]}'"


@contextmanager
def unpacked(source: Source) -> Iterator[Unpacked]:
    """The files of an archive in a directory, which is removed in the end unless it is `kept`.

    Raises:
        InputError: it is damaged at its start, or would take more than is bearable.
    """
    folder = Path(tempfile.mkdtemp(prefix="rlprobe-"))
    content = Unpacked(source.path, folder)
    try:
        content.fill(source)
        yield content
    except OSError as error:
        raise InputError(f"Couldn't unpack '{source.path}': {error.strerror or error}") from error
    finally:
        if not content.kept:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Unpacked:
    """What is unpacked of one archive.

    Attributes:
        folder: where it lies now.
        kept: whether the folder stays until the end of the process.
        problems: members that could not be unpacked.
    """

    path: Path
    folder: Path
    kept: bool = False
    problems: list[Problem] = field(default_factory=list)
    _passed: Counter[str] = field(default_factory=Counter)
    _bytes: int = 0
    _members: int = 0
    _most: int = MOST_BYTES
    _packed: int = 0

    def notes(self) -> list[str]:
        """What was passed over."""
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self._passed.most_common(5))
        return [f"not unpacked: {kinds}"] if kinds else []

    def fill(self, source: Source) -> None:
        """Unpack what may tell of a run."""
        self._most = min(MOST_BYTES, shutil.disk_usage(self.folder).free // 2)
        self._packed = source.size()
        with source.open() as file:
            members = _zipped(file) if source.head.startswith(compression.ZIP) else _tarred(file)
            try:
                for member in members:
                    if self._members >= MOST_MEMBERS:
                        self._complain(f"all after the first {MOST_MEMBERS:,} members left out")
                        break
                    self._members += 1
                    self._take(member)
            except _DAMAGE as error:
                if not self._bytes:
                    raise InputError(f"Couldn't unpack '{self.path}': {error}") from error
                self._complain(f"the rest could not be unpacked: {error}")

    def _take(self, member: Member) -> None:
        place = self._place(member.name)
        if place is None or member.refused:
            why = member.refused or "its name leads elsewhere, or is no name"
            self._complain(f"{_quoted(member.name)} left out: {why}")
            return
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if member.size > _SMALL and not may_be_log(place.name):
                self._passed[place.suffix or place.name] += 1
                return
            self._copy(member, place)
        except (FileExistsError, IsADirectoryError, NotADirectoryError):
            self._complain(f"{_quoted(member.name)} left out: another member has its name")
        except RuntimeError as error:  # zipfile's for a member under a password
            self._complain(f"{_quoted(member.name)} left out: {error}")

    def _place(self, name: str) -> Path | None:
        """Where a member goes; None where that would be outside of the folder."""
        text = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        parts = [part for part in text.replace("\\", "/").split("/") if part not in ("", ".")]
        bad = not parts or len(parts) > _DEEPEST or ".." in parts or "\0" in name
        try:
            bad = bad or any(len(part.encode()) > _LONGEST_NAME for part in parts)
        except UnicodeEncodeError:
            bad = True
        return None if bad else self.folder.joinpath(*parts)

    def _copy(self, member: Member, place: Path) -> None:
        with member.open() as source, place.open("wb") as file:
            while piece := source.read(_PIECE):
                self._count(len(piece))
                file.write(piece)

    def _count(self, size: int) -> None:
        self._bytes += size
        swollen = self._bytes > compression.MOST_SWELLING * max(1, self._packed)
        if self._bytes > compression.HARMLESS_BYTES and swollen:
            raise InputError(
                f"Couldn't unpack '{self.path}': it swells to more than "
                f"{compression.MOST_SWELLING} times its size, which no log does"
            )
        if self._bytes > self._most:
            raise InputError(
                f"Couldn't unpack '{self.path}': it takes more than {self._most // 2**20:,} MB",
                hint="Unpack it where there is room, and give the directory.",
            )

    def _complain(self, why: str) -> None:
        if len(self.problems) < _MOST_NAMED:
            self.problems.append(Problem(str(self.path), why))
        elif len(self.problems) == _MOST_NAMED:
            self.problems.append(Problem(str(self.path), "more members left out"))

    def shown(self, text: str) -> str:
        """A text with the archive's name in place of the temporary directory's."""
        return text.replace(str(self.folder), str(self.path))

    def named(self, runs: Sequence[Run]) -> list[Run]:
        """The runs under the archive's name, not under that of the temporary directory.

        Recordings read their files when they are asked: for them the directory stays until the
        end of the process.
        """
        for run in runs:
            info = replace(
                run.info,
                path=self.shown(run.info.path),
                notes=tuple(map(self.shown, run.info.notes)),
            )
            if isinstance(run, TableRun):
                run.info = info
                run.problems = tuple(map(self._problem, run.problems))
                run.events = tuple(map(self._event, run.events))
            else:
                vars(run)["info"] = info
                self._keep()
        if runs and isinstance(runs[0], TableRun):
            runs[0].info = replace(runs[0].info, notes=(*runs[0].info.notes, *self.notes()))
            runs[0].problems = (*runs[0].problems, *self.problems)
        return list(runs)

    def _keep(self) -> None:
        if not self.kept:
            atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
            self.kept = True

    def _problem(self, problem: Problem) -> Problem:
        return Problem(self.shown(problem.path), self.shown(problem.message))

    def _event(self, event: Event) -> Event:
        data = {key: self._text(value) for key, value in event.data.items()}
        return replace(event, message=self.shown(event.message), data=data)

    def _text(self, value: Any) -> Any:
        return self.shown(value) if isinstance(value, str) else value
