"""Every campaign there is, in the order of the page."""

from __future__ import annotations

from collections import Counter
from functools import partial

from benchmarks.reliability import disks, flips, hostile_recordings, inputs, kills, waits
from benchmarks.reliability.promises import Campaign

_LOST, _UNHARMED, _LET_IN = "Nothing lost", "Training unharmed", "Nothing let in"


def _inputs(count: int, first: int) -> Counter[str]:
    return Counter(item.outcome for item in inputs.attempts(first, count, jobs=2))


def _kills(name: str, promise: str, attempt: str, usual: int) -> Campaign:
    run = partial(kills.campaign, name)
    return Campaign(f"kill-{name}", _LOST, promise, attempt, frozenset({kills.HELD}), usual, run)


def _disk(fault: str, attempt: str) -> Campaign:
    promise = "Weights and random numbers are those of the run that nobody recorded"
    good = frozenset({disks.SAME})
    return Campaign(
        f"disk-{fault}", _UNHARMED, promise, attempt, good, 20, partial(disks.campaign, fault)
    )


CAMPAIGNS = (
    _kills(
        "recorder",
        "What `event` and `flush` returned for is on disk",
        "`kill -9` of a recording process",
        500,
    ),
    _kills("compact", "`compact` loses and repeats no row", "`kill -9` in mid-merge", 200),
    _kills(
        "command",
        "What was durable stays, the end is told, the exit code is 137",
        "`kill -9` of what `rlprobe record` runs",
        150,
    ),
    _kills(
        "launcher",
        "The command goes on to its end, and is recorded",
        "`kill -9` of `rlprobe record`",
        150,
    ),
    Campaign(
        "waits",
        _UNHARMED,
        "Nothing waits longer than `flush_seconds` for a disk that hangs",
        "fork, `describe`, a durable event, `flush`, `close`, SIGTERM, SIGINT, exit, exception",
        frozenset({waits.IN_TIME}),
        90,
        waits.campaign,
    ),
    _disk("none", "a recorded TRL run"),
    _disk("full", "the disk fills up at a random step"),
    _disk("read_only", "it is mounted read-only at a random step"),
    _disk("eio", "every `fsync` fails from a random step on"),
    _disk("hang", "every `fsync` hangs from a random step on"),
    _disk("deleted", "the run directory is deleted at a random step"),
    Campaign(
        "inputs",
        _LET_IN,
        "Read to the last value, or refused with a reason: no traceback, no hang, no raw text",
        "a harmed log, store or recording of any format",
        inputs.GOOD,
        1_000_000,
        _inputs,
    ),
    Campaign(
        "flips",
        _LET_IN,
        "What is damaged is named and left out, and makes no verdict of pass",
        "one flipped bit anywhere in a recording",
        flips.GOOD,
        1_000,
        flips.campaign,
    ),
    Campaign(
        "recordings",
        _LET_IN,
        "Read as far as it is what it should be; the rest is named: no traceback, no hang, no raw "
        "text",
        "a recording made to do harm, given to three verbs",
        hostile_recordings.GOOD,
        2_000,
        hostile_recordings.campaign,
    ),
)
