"""Console output: whatever a terminal or a batch system kept of a run."""

from __future__ import annotations

from collections.abc import Iterable

from rlprobe import schema
from rlprobe.errors import EmptyRunError
from rlprobe.importers.console.rows import Reader
from rlprobe.importers.console.sieve import Lines
from rlprobe.importers.console.steps import ConsoleRow
from rlprobe.importers.console.trainings import Mark, Trainings
from rlprobe.importers.console.wrapped import width_of
from rlprobe.importers.importer import Importer, Reading
from rlprobe.importers.source import Source


class Console(Importer):
    """Console logs: what a terminal, `tee`, SLURM or a notebook kept of a run.

    Read are the dicts of TRL and the Hugging Face Trainer (floats or quoted strings, bare `nan`,
    glued to a progress bar), verl (`step:12 - actor/pg_loss:np.float64(0.1)`), OpenRLHF
    (`Global step 7: {…}`), slime (`rollout 12: {…}`), SkyRL (`Step 12:` and a printed dict),
    Megatron and DeepSpeed (`iteration 10/ 100 | lm loss: 1.0E+00 | …`, `OVERFLOW!`,
    `step=10, skipped=6, lr=[…]`), torchtitan, prime-rl, nanochat (`step 12 | loss: 0.5 | …`),
    metrics in a progress bar, JSON lines between other text, tables (notebooks of Unsloth as text,
    Markdown or HTML; Stable-Baselines3), and blocks of `name: number` under a `Step 2/30`.

    Colours, Ray and rank prefixes and carriage returns are taken off. A dict that is broken over
    lines is put together. The same row printed by every rank counts once. What only looks like
    metrics does not count: a row needs a number under a name that the vocabulary knows as a
    measurement, so that printed configurations, source code and model answers pass by.

    What comes after the last row tells how the run ended: an exception that nobody caught, memory
    that ran out, a collective that timed out, a signal, the end of a job's time.

    What frameworks, engines, schedulers and drivers say between the rows becomes events, or numbers
    of the next row: watchdogs of collectives with their rank and how far it was, gradients that are
    not finite, overflows and the loss scale, the use of the KV cache and pre-emption, checkpoints
    written and resumed from, jobs that were ended, faults of a device. `schemas/messages.toml` has
    them. A crash that another launch followed is told at its step.

    Where rows tell no step it comes from the progress bar, or rows are numbered; the notes say
    which. Megatron prints a loss only where it is not negative: where the line has none, the loss
    is not logged, and a warning about a gradient that is not finite is taken into its step.

    Source: transformers ProgressCallback and PrinterCallback, verl LocalLogger, OpenRLHF
    PPOTrainer, slime train_metric_utils, Megatron-LM training_log, DeepSpeed loss_scaler,
    torchtitan MetricsProcessor.
    """

    name = "console"
    description = "console output of a training run"
    priority = 90
    step_keys = schema.step_keys().formats["console"]
    fallback = True

    def recognises(self, source: Source) -> bool:
        """Any text: whether it has metrics shows only when it is read."""
        return source.is_text

    def read(self, source: Source) -> list[Reading]:
        """The run in the output."""
        return readings_of(source, Lines.of(source))


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
    notes = (reader.note, *reader.account.notes(), *reader.ranks.notes())
    readings = trainings.readings([note for note in notes if note])
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
