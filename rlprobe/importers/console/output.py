"""Lines of output, wherever they come from -> the runs in them."""

from __future__ import annotations

from collections.abc import Iterable

from rlprobe.errors import EmptyRunError
from rlprobe.importers.console.listener import Listener
from rlprobe.importers.console.repeats.sieve import Alike, LineBlock
from rlprobe.importers.console.repeats.stretches import Stretches
from rlprobe.importers.console.rows import Reader
from rlprobe.importers.console.signs import tells
from rlprobe.importers.console.steps import ConsoleRow
from rlprobe.importers.console.trainings import Mark, Trainings
from rlprobe.importers.console.wrapped import width_of
from rlprobe.importers.importer import Reading
from rlprobe.importers.source import Source


def readings_of(
    source: Source, output: Iterable[LineBlock] | Iterable[str | Mark]
) -> list[Reading]:
    """The runs in lines of output, wherever they come from; EmptyRunError if there are none."""
    reader, trainings = Reader(step_key=source.step_key, width=width_of(source.head)), Trainings()
    alike = Alike()
    for item in output:
        if isinstance(item, LineBlock):
            read_block(item, alike, reader, trainings)
        elif isinstance(item, Mark):
            _pause(reader, trainings)
            trainings.mark(item)
        else:
            _hear(item, reader, trainings)
    trainings.add_late(last_rows(reader, trainings))
    readings = readings_at_end(reader, trainings, alike)
    if not readings:
        raise EmptyRunError(f"Couldn't find metrics in '{source.path}'")
    return readings


def last_rows(reader: Reader, trainings: Listener) -> list[ConsoleRow]:
    """Hand over what waits for lines that do not come; the rows that are known only now."""
    _pause(reader, trainings)
    return reader.finish()


def readings_at_end(reader: Reader, trainings: Trainings, alike: Alike) -> list[Reading]:
    """The runs in what was read, all of it; [] if there are none."""
    notes = (reader.note, *reader.notes(), *alike.notes())
    readings = trainings.readings([note for note in notes if note])
    if not readings:
        return []
    readings[0].unread = [*reader.account.unread(), *readings[0].unread]
    # Rows of ranks tell nothing of several trainings: each has steps of its own.
    return [*readings, *reader.ranks.readings()] if len(readings) == 1 else readings


def read_block(block: LineBlock, alike: Alike, reader: Reader, trainings: Listener) -> None:
    """The lines of a block that can matter to the reader; all of them while it waits for some."""
    texts, numbers, skeletons = block.texts, block.numbers, block.skeletons
    likes, meant = alike.of(block), reader.known.meant
    stretches = Stretches(block, likes, reader, trainings)
    reader.wrapped.widen(block.longest)
    unsaid = resume = 0
    idle, before = reader.idle or (block.at_speed and reader.waits_for_none), reader.progress
    for place, like in enumerate(likes):
        text = texts[place]
        if (idle and not like.matters) or not text or place < resume:
            continue
        try:
            shape = like.shape
            line = meant(text, numbers[place], shape) if shape and not reader.waits else None
            if line is not None and idle and line.inert:
                like.matters = False
                continue
            if line is not None and reader.take(line):
                rows = reader.given()
            else:
                line = None
                if tells(text):
                    trainings.say(texts[unsaid:place])
                    unsaid = place
                    _pause(reader, trainings)
                    trainings.hear(text)
                    before = reader.progress
                alone = not reader.waits
                rows = reader.feed(text, numbers[place])
                if alone and reader.known.shape is not None:
                    alike.learn(skeletons[place], reader.known.shape)
            if reader.progress != before:
                before = reader.progress
                trainings.say(texts[unsaid:place] if trainings.alarmed else ())
                trainings.move()
                unsaid = place
            if rows or reader.said:
                _give(reader, trainings, rows)
            if line is not None:
                like.line = line
                resume = stretches.take(place, line, gave=bool(rows))
                if resume > place + 1:
                    unsaid, before = resume, reader.progress
        except Exception as error:
            reader.recover(text, numbers[place], error)
        idle = reader.idle or (block.at_speed and reader.waits_for_none)
    trainings.say(texts[unsaid:])


def _hear(line: str, reader: Reader, trainings: Trainings) -> None:
    """A line from elsewhere."""
    if tells(line):
        _pause(reader, trainings)
        trainings.hear(line)
    before = reader.progress
    rows = _fed(line, reader)
    if reader.progress != before:
        trainings.move()
    if rows or reader.said:
        _give(reader, trainings, rows)
    trainings.say((line,))


def _fed(line: str, reader: Reader) -> list[ConsoleRow]:
    try:
        return reader.feed(line)
    except Exception as error:
        reader.recover(line, reader.lines, error)
        return []


def _pause(reader: Reader, trainings: Listener) -> None:
    """Hand over the rows that wait; where one of them was not known yet, the output went on."""
    before = reader.progress
    reader.drain()
    if reader.progress != before:
        trainings.move()
    _give(reader, trainings, reader.pause())


def _give(reader: Reader, trainings: Listener, rows: list[ConsoleRow]) -> None:
    """Hand over rows, and messages behind the rows that were printed before them."""
    given = reader.count - len(rows)
    for behind, message in reader.said:
        trainings.add(rows[: behind - given])
        trainings.tell(message)
        rows, given = rows[behind - given :], behind
    trainings.add(rows)
