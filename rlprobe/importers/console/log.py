"""Console output: whatever a terminal or a batch system kept of a run."""

from __future__ import annotations

import itertools

from rlprobe import schema
from rlprobe.importers.importer import Importer, Reading
from rlprobe.importers.source import Source


class Console(Importer):
    """Console logs: what a terminal, `tee`, SLURM or a batch system kept of a run.

    Told by its form first, by its names second: names and numbers in one line (`k: v`, `k=v`,
    `k v`, `k:v - k:v`, `k: v | k: v`, dicts with and without braces, `tag value step`), over
    several lines (panels between rules, boxes, YAML, names under a heading with the step, lines
    after the row of their step), in tables with a header (fixed width, Markdown, HTML), and in
    progress bars. Units, percent, thousands, `tensor(…)`, `np.float64(…)`, `x ± y` and `12/500`
    are understood: milliseconds become seconds, a percentage a fraction, `± y` a spread of its own.

    Colours, time stamps, levels, loggers, workers, ranks and `> ` of quoted mail are taken off. A
    row that the terminal broke is put together, in mid-name and in mid-number, too; a number that
    may go on where its line is cut is not read. What ranks print into one log is one run: the row
    of a step counts once, and ranks that differ keep their own rows.

    A row needs a number under a name that the vocabulary knows as a measurement, so that printed
    configurations, source code and model answers pass by; other names count beside it, or where
    they come at every step. Lines that look like metrics and were not understood are counted and
    quoted, and so is what was printed for single samples. Evaluations that are printed task by task
    (`Evaluating: arc (10-shot)... accuracy: 0.57`) are metrics below `eval/`, at the step before.

    Of a long log (from 256 kB on) not every line is looked at one by one: one that comes only once
    in 4 MB, and in which no word of a known name stands beside a number, is text.

    The step is the counter that counts optimizer steps best: `global iter` before `inner iter`
    before samples and epochs. The other counters are kept, and `--step-key` chooses. Where rows
    tell none it comes from the progress bar, or rows are numbered; the notes say which. Several
    trainings in one log are several runs, `log#1`, `log#2`; a relaunch is an attempt.

    What frameworks say beside metrics becomes events: exceptions, memory, collectives that timed
    out, NaN, overflows, checkpoints, the end of a job's time (`schemas/messages.toml`). Megatron
    prints a loss only where it is not negative: where the line has none, the loss is not logged.

    Source: transformers ProgressCallback and PrinterCallback, verl LocalLogger, OpenRLHF
    PPOTrainer, slime train_metric_utils, Megatron-LM training_log, DeepSpeed loss_scaler,
    DeepSpeed-Chat step 3, torchtitan MetricsProcessor, stable_baselines3/common/logger.py, Ray Tune
    CLIReporter, garage dowel, mmengine LoggerHook, AReaL StatsLogger, RLinf metric_utils.
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
        # Its patterns cost more than a small log of another format.
        from rlprobe.importers.console.output import readings_of
        from rlprobe.importers.console.repeats.sieve import blocks_in, blocks_of
        from rlprobe.importers.console.terminal import terminal_of, unbroken

        blocks, terminal = blocks_of(source), terminal_of(source.head)
        if terminal is None:
            return readings_of(source, blocks)
        lines = itertools.chain.from_iterable(block.lines for block in blocks)
        return readings_of(source, blocks_in(unbroken(lines, terminal)))
