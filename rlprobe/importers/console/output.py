"""Lines of output, wherever they come from -> the runs in them."""

from __future__ import annotations

from collections.abc import Iterable

from rlprobe.errors import EmptyRunError
from rlprobe.importers.console.rows import Reader
from rlprobe.importers.console.sieve import Lines
from rlprobe.importers.console.steps import ConsoleRow
from rlprobe.importers.console.trainings import Mark, Trainings
from rlprobe.importers.console.wrapped import width_of
from rlprobe.importers.importer import Reading
from rlprobe.importers.source import Source


def readings_of(source: Source, output: Lines | Iterable[str | Mark]) -> list[Reading]:
    """The runs in lines of output, wherever they come from; EmptyRunError if there are none."""
    reader, trainings = Reader(step_key=source.step_key, width=width_of(source.head)), Trainings()
    lines = output if isinstance(output, Lines) else None
    given = output if not isinstance(output, Lines) else output.read(lambda: reader.idle)
    for line in given:
        if isinstance(line, Mark):
            _pause(reader, trainings)
            trainings.mark(line)
            continue
        passed = () if lines is None else lines.passed()
        if lines is not None and lines.skipped:
            reader.pass_over(lines.skipped, lines.longest)
        if trainings.tells(line):
            _pause(reader, trainings)
            trainings.hear(line)
        before = reader.progress
        rows = reader.feed(line)
        for text in passed:
            trainings.say(text)
        if reader.progress != before:
            trainings.move()
        if rows or reader.said:
            _give(reader, trainings, rows)
        trainings.say(line)
    for text in () if lines is None else lines.passed():
        trainings.say(text)
    _pause(reader, trainings)
    trainings.add_late(reader.finish())
    readings = trainings.readings([note for note in (reader.note, *reader.notes()) if note])
    if not readings:
        raise EmptyRunError(f"Couldn't find metrics in '{source.path}'")
    readings[0].unread = [*reader.account.unread(), *readings[0].unread]
    # Rows of ranks tell nothing of several trainings: each has steps of its own.
    return [*readings, *reader.ranks.readings()] if len(readings) == 1 else readings


def _pause(reader: Reader, trainings: Trainings) -> None:
    """Hand over the rows that wait; where one of them was not known yet, the output went on."""
    before = reader.progress
    reader.drain()
    if reader.progress != before:
        trainings.move()
    _give(reader, trainings, reader.pause())


def _give(reader: Reader, trainings: Trainings, rows: list[ConsoleRow]) -> None:
    """Hand over rows, and messages behind the rows that were printed before them."""
    given = reader.count - len(rows)
    for behind, message in reader.said:
        trainings.add(rows[: behind - given])
        trainings.tell(message)
        rows, given = rows[behind - given :], behind
    trainings.add(rows)
