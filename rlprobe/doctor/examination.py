"""What `rlprobe record COMMAND` would record: what was looked at, and what follows."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlprobe import redaction
from rlprobe.commands import command_line
from rlprobe.commands.starts import Start
from rlprobe.commands.wrappers import assignment
from rlprobe.doctor import judgement, packages, places
from rlprobe.doctor.imports import Sources
from rlprobe.doctor.interpreter import Answer
from rlprobe.doctor.judgement import ORDER, Judgement, Verdict
from rlprobe.doctor.questions import Questions
from rlprobe.errors import InputError, UsageError
from rlprobe.launcher import handed_down
from rlprobe.numbers import plural, size
from rlprobe.recorder import launch

_WORDS: dict[Verdict, str] = {
    "inside": "metrics are recorded as they are logged: {names}",
    "output": "metrics are recorded from what the command prints, and from nothing else",
    "unknown": "whether anything would be recorded could not be seen",
    "nothing": "nothing of this command reaches us",
}
_MOST_NAMES = 4


@dataclass(frozen=True, slots=True)
class Examination:
    """What would be recorded of a command.

    Attributes:
        command: as it was given, without secrets.
        verdict: where metrics would be recorded from.
        obstacle: what has to be done first; empty if nothing has to.
        summary: the verdict in a sentence.
        will: what would be recorded.
        will_not: what would not, and why.
        to_do: what to do about it.
        looked_at: what all this rests on.
        pythons: what each Python said, for programs.
        ranks: processes that are expected; None where the words do not tell.
    """

    command: str
    verdict: Verdict
    obstacle: str
    summary: str
    will: tuple[str, ...]
    will_not: tuple[str, ...]
    to_do: tuple[str, ...]
    looked_at: tuple[str, ...]
    pythons: tuple[Mapping[str, Any], ...]
    ranks: int | None
    run_dir: str
    free_bytes: int | None

    @property
    def is_recorded(self) -> bool:
        """Whether metrics would be recorded, with nothing to be done first."""
        return self.verdict in ("inside", "output") and not self.obstacle


def examine(command: Sequence[str], run_dir: Path | None = None) -> Examination:
    """Look at a command without running it.

    Raises:
        UsageError: there is no command.
        InputError: it cannot be started.
    """
    if not command:
        raise UsageError(
            "Couldn't look at nothing", hint="Give the command: rlprobe doctor python train.py"
        )
    place = places.run_place(run_dir, command)
    with _status_folder() as status:
        directory = Path.cwd()
        reading = command_line.read(command, _environ(status.folder), directory)
        _check(reading, command)
        examined = _Examined(reading)
        for start in reading.starts:
            examined.take(start)
        if len(reading.starts) == 1 and not reading.texts and examined.missing:
            raise _not_startable(command, examined.missing)
    return _examination(command, examined, place, has_status=status.is_dir)


def _check(reading: command_line.Reading, command: Sequence[str]) -> None:
    """A command that cannot start is no question of what is recorded."""
    starts = reading.starts
    if len(starts) == 1 and starts[0].problem and not reading.texts:
        raise _not_startable(command, f"'{starts[0].words[0]}' {starts[0].problem}")


def _not_startable(command: Sequence[str], why: str) -> InputError:
    shown = shlex.join(redaction.words(list(command)))
    return InputError(
        f"Couldn't look at '{shown}': {why}",
        hint=(
            "Put `env` before it: variables are set by a shell, or by env."
            if assignment(command[0])
            else "Give the command as you would start it: rlprobe doctor python train.py"
        ),
    )


@dataclass(frozen=True, slots=True)
class _Status:
    folder: str
    is_dir: bool


@contextlib.contextmanager
def _status_folder() -> Iterator[_Status]:
    """A folder like the one in which the processes of a command leave word, for the question."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="rlprobe-", ignore_cleanup_errors=True)
    except OSError:
        yield _Status(os.devnull, is_dir=False)
        return
    with folder as name:
        yield _Status(name, is_dir=True)


def _environ(folder: str) -> dict[str, str]:
    """The environment that `rlprobe record` would give the command."""
    return handed_down.environ(Path(folder) / "run", Path(folder), launch.place())


@dataclass
class _Examined:
    """The starts of a command, one after another."""

    reading: command_line.Reading
    questions: Questions = field(default_factory=Questions)
    judged: list[tuple[Start, Judgement]] = field(default_factory=list)
    looked_at: list[str] = field(default_factory=list)
    pythons: list[dict[str, Any]] = field(default_factory=list)
    missing: str = ""  # the last script that is not there

    def take(self, start: Start) -> None:
        """Look at the code of a start, ask its Python, and judge."""
        sources, answer = Sources(), Answer()
        if start.interpreter and not start.problem:
            sources, answer = self.questions.put(start)
            self.missing = sources.missing if start.target.kind == "script" else ""
        module = start.target.text if start.target.kind == "module" else ""
        uses = packages.uses(sources, module)
        self.judged.append((start, judgement.judge(start, sources, answer, uses)))
        self.looked_at += judgement.looked_at(start, sources, answer)
        if answer.executable:
            self._note(start, answer)

    def _note(self, start: Start, answer: Answer) -> None:
        there = answer.packages or {}
        self.pythons.append(
            {
                "executable": answer.executable,
                "version": answer.python,
                "hook": answer.hook is not None,
                "packages": {name: item.version or None for name, item in there.items()},
                "ranks": start.around.ranks,
                "where": start.around.where or None,
            }
        )


def _examination(
    command: Sequence[str], examined: _Examined, place: places.Place, *, has_status: bool
) -> Examination:
    judged = examined.judged
    verdicts: list[Verdict] = [item.verdict for _, item in judged]
    verdict: Verdict = min([*verdicts, ORDER[-1]], key=ORDER.index)
    names = list(dict.fromkeys(name for _, item in judged for name in item.names))
    obstacles = [item.obstacle for _, item in judged]
    obstacle = place.problem or (obstacles[0] if obstacles and all(obstacles) else "")
    reading = examined.reading
    status = [] if has_status else ["make room for temporary files: $TMPDIR cannot be written"]
    will_not = [*_each(judged, lambda item: item.will_not), *_without_starts(reading)]
    to_do = [*_of_place(place), *status, *_each(judged, lambda item: item.to_do)]
    ranks = [start.around.ranks for start, _ in judged if start.interpreter]
    return Examination(
        command=shlex.join(redaction.words(list(command))),
        verdict=verdict,
        obstacle=obstacle,
        summary=obstacle or _summary(verdict, names, [item for _, item in judged]),
        will=tuple(_each(judged, lambda item: item.will)),
        will_not=tuple(will_not),
        to_do=_unique(to_do),
        looked_at=_unique([*_texts(reading), *examined.looked_at, *_room(place)]),
        pythons=tuple(examined.pythons),
        ranks=max((rank for rank in ranks if rank), default=1) if None not in ranks else None,
        run_dir=place.path,
        free_bytes=place.free,
    )


def _summary(verdict: Verdict, names: Sequence[str], judged: Sequence[Judgement]) -> str:
    """The verdict in a sentence; where there are several Pythons, of how many it is true."""
    named = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
    sentence = _WORDS[verdict].format(names=named)
    if verdict == "output" and any(item.is_opaque for item in judged):
        return "metrics are recorded from what the command prints; what it starts was not seen"
    alike = [item.verdict for item in judged].count(verdict)
    return sentence if alike == len(judged) else f"{sentence}; in {alike} of {len(judged)} programs"


def _each(
    judged: Sequence[tuple[Start, Judgement]], lines: Callable[[Judgement], list[str]]
) -> list[str]:
    """The sentences of all starts, once each; with their places if not all starts have them."""
    places: dict[str, list[str]] = {}
    for start, item in judged:
        for line in lines(item):
            places.setdefault(line, []).append(start.around.where)
    return [
        line if len(at) >= len(judged) or not any(at) else f"{'; '.join(dict.fromkeys(at))}: {line}"
        for line, at in places.items()
    ]


def _unique(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lines))


def _without_starts(reading: command_line.Reading) -> list[str]:
    if reading.starts:
        return []
    texts = ", ".join(dict.fromkeys(reading.texts))
    return [f"no Python is started in {texts}, as far as can be seen"] if texts else []


def _texts(reading: command_line.Reading) -> list[str]:
    """What was read of scripts of the shell, and what of them was not."""
    lines = []
    if reading.texts:
        texts = ", ".join(dict.fromkeys(reading.texts))
        others = f"; {plural(reading.others, 'other command')} in it" if reading.others else ""
        lines.append(f"{texts}, by the text: it was read, not run{others}")
    lines += reading.remarks
    return [*lines, "there is more in it than was looked at"] if reading.cut else lines


def _room(place: places.Place) -> list[str]:
    if place.problem:
        return []
    free = f", {size(place.free)} free" if place.free is not None else ""
    before = f"; {plural(place.attempts, 'attempt')} in it" if place.attempts else ""
    return [f"{place.path}: can be written{free}{before}"]


def _of_place(place: places.Place) -> list[str]:
    lines = [place.try_instead] if place.try_instead else []
    if place.is_narrow and place.free is not None:
        lines.append(f"make room: {size(place.free)} free at {place.path}")
    if place.few_files is not None:
        lines.append(f"make room: {plural(place.few_files, 'more file')} fit at {place.path}")
    return lines
