"""A directory of logs -> what is of one run, put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rlprobe.errors import InputError
from rlprobe.importers import membership
from rlprobe.importers.console.silent import events_of
from rlprobe.importers.directory import Listing
from rlprobe.importers.folders import Folder, folders_in
from rlprobe.importers.formats import formats
from rlprobe.importers.gathered import Gathered, Part
from rlprobe.importers.importer import Importer, Reading
from rlprobe.importers.looked_at import LookedAt
from rlprobe.importers.renumbering import numbered_by
from rlprobe.importers.rotation import Log, logs_of
from rlprobe.importers.source import Source
from rlprobe.importers.told_twice import told_once
from rlprobe.values import Event

Content = tuple[Importer, list[Reading]]
Read = Callable[[Source], Content]


class Gathering:
    """Reads every log below a directory.

    Attributes:
        runs: what was found, in order of the names.
        notes: what became of the other files, one line for each kind.
        account: which file was read as what.
    """

    def __init__(self, root: Path, read: Read, step_key: str | None = None) -> None:
        self._root, self._read, self._step_key = root, read, step_key
        self._groups: dict[tuple[str, Importer], Gathered] = {}
        self._outputs: dict[Path, Path] = {}  # of error outputs
        self.listing = Listing(root)
        self.account = LookedAt(root)
        self._gather()
        self._add_endings()
        groups = told_once(root, list(self._groups.values()), self.account.said)
        self.runs = list(self._with_rollouts(groups))
        for run in self.runs:
            self._rank(run)
            self._name_files(run)

    def _gather(self) -> None:
        taken = _surpassed(self.listing.logs)
        for folder in folders_in(self._root, self.account.refuse):
            taken.update(folder.files)
            if self._numbered(folder):
                self._add(folder.files[0], folder.importer, Part(folder.path, folder.readings))
        for log in logs_of([path for path in self.listing.logs if path not in taken]):
            self._look(log)
        if not self._groups:
            for path in self.listing.notebooks:
                self._look(Log(path, (path,)))

    def _numbered(self, folder: Folder) -> bool:
        """Whether a folder's rows are numbered as the user asked for."""
        if self._step_key is not None:
            try:
                numbered_by(folder.readings, self._step_key, folder.path)
            except InputError as error:
                self.account.refuse(folder.path, error)
                return False
        return True

    def _add(self, path: Path, importer: Importer, part: Part) -> None:
        key = membership.run_of(path, self._root)
        if importer.folder:
            key = str(Path(key).parent)
        group = self._groups.setdefault((key, importer), Gathered(key, importer, []))
        group.parts.append(part)
        self.account.read[importer.name] += 1

    def _look(self, log: Log) -> None:
        """Read one log; where its process wrote to two outputs, both."""
        output = self._tried(log.path, log.parts)
        if log.errors is not None:
            self._look_at_both(log, log.errors, output)
        elif output is not None:
            self._add(log.path, output[0], Part(log.path, output[1]))

    def _look_at_both(self, log: Log, beside: Path, output: Content | None) -> None:
        self._outputs[beside] = log.path
        errors = self._tried(beside, (beside,))
        if output is not None and errors is not None:
            self._add_both(Part(log.path, output[1]), output[0], Part(beside, errors[1]))
            return
        path, content = (log.path, output) if output is not None else (beside, errors)
        if content is None:
            return
        if content[0].fallback:  # text: the end of the run may stand in the other
            content = self._tried(path, (*log.parts, beside)) or content
            self.account.take(log.path, beside)
        self._add(path, content[0], Part(path, content[1]))

    def _add_both(self, output: Part, importer: Importer, errors: Part) -> None:
        """Metrics stand in both outputs: the same ones, which count once, or others."""
        parts = sorted([output, errors], key=lambda part: -part.cells())
        if parts[0].names() & parts[1].names():
            self.account.say_twice(parts[1].path, parts[0].path)
            last = parts[0].readings[-1]
            last.events = [*last.events, *parts.pop().events()]
        for part in parts:
            self._add(output.path, importer, part)

    def _tried(self, path: Path, parts: tuple[Path, ...]) -> tuple[Importer, list[Reading]] | None:
        try:
            return self._read(Source(path, self._step_key, parts=parts))
        except InputError as error:
            self.account.refuse(path, error)
            return None

    def _add_endings(self) -> None:
        """What logs without metrics tell of the run that they are of (ranks)."""
        texts = {key: group for (key, kind), group in self._groups.items() if kind.fallback}
        for path in [*self.account.empty, *(path for path, _ in self.account.failed)]:
            output = self._outputs.get(path, path)
            group = texts.get(membership.run_of(output, self._root))
            events = _events(path) if group is not None else []
            if group is None or not events:
                continue
            ranks = membership.ranks_of([*(part.path for part in group.parts), path], self._root)
            rank = ranks[-1] if ranks else 0
            told = [replace(event, rank=event.rank or rank) for event in events]
            group.parts.append(Part(path, [Reading(events=told)]))
            self.account.take(path)

    def _with_rollouts(self, groups: Sequence[Gathered]) -> Iterator[Gathered]:
        """Files of nothing but rollouts join the run beside them, where there is just one."""
        logs = [group for group in groups if group.holds_rows]
        if len(logs) != 1:
            yield from groups
            return
        loose = [part for group in groups if group is not logs[0] for part in group.parts]
        yield replace(logs[0], parts=[*logs[0].parts, *loose])

    def _rank(self, run: Gathered) -> None:
        """Say which rank each reading is of, where the names of the files tell it."""
        logs = [part for part in run.parts if part.holds_rows]
        ranks = membership.ranks_of([part.path for part in logs], self._root)
        for part, rank in zip(logs, ranks or (), strict=bool(ranks)):
            for reading in part.readings:
                reading.rank = rank
                reading.events = [replace(event, rank=rank) for event in reading.events]

    def _name_files(self, run: Gathered) -> None:
        """Say in which file it stands what was not understood, where a run has several."""
        for part in run.parts if len(run.parts) > 1 else ():
            name = part.path.relative_to(self._root).as_posix()
            for reading in part.readings:
                reading.unread = [
                    replace(item, files=(name,) * len(item.examples)) for item in reading.unread
                ]


def _surpassed(logs: Sequence[Path]) -> set[Path]:
    """Files of whole runs beside which there is a longer one: the run's own, or a newer one."""
    names = {importer.whole_run for importer in formats() if importer.whole_run}
    files = [path for path in logs if path.name in names]
    longest: dict[tuple[Path, str], Path] = {}
    for path in files:
        run = path.parent if membership.checkpoint_of(path) is None else path.parent.parent
        best = longest.setdefault((run, path.name), path)
        if _length(path) > _length(best):
            longest[run, path.name] = path
    return set(files) - set(longest.values())


def _length(path: Path) -> float:
    number = membership.checkpoint_of(path)
    return float("inf") if number is None else number


def _events(path: Path) -> list[Event]:
    try:
        return events_of(Source(path))
    except InputError:
        return []
