"""What every verb says of a recording that was made to do harm."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from rlprobe.cli import main
from rlprobe.exit_codes import COULD_NOT_JUDGE
from tests.store.hostile import Case

LONGEST = 10.0  # seconds of one verb
ANSWERED, FAULTY, RAW, HUNG = "answered", "FAULT", "RAW TEXT", "HUNG"
VERBS: tuple[tuple[str, ...], ...] = (
    ("scan", "RUN", "--format", "json"),
    ("scan", "RUN"),
    ("show", "RUN", "--step", "5"),
    ("query", "RUN", "select * from steps", "--format", "json"),
    ("query", "RUN", "select * from events", "--format", "csv"),
    ("query", "RUN", "select * from samples"),
    ("query", "RUN", "select count(*) from ranks"),
    ("import", "RUN", "--run", "NEW"),
    ("compact", "RUN"),
    ("ls", "RUN"),
    ("show", "RUN", "--step", "5", "--format", "json", "--all", "--full"),
    ("gate", "RUN"),
    ("scan", "RUN", "--format", "markdown"),
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class _TooLongError(BaseException):
    pass


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    def late(*_: object) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def answer(words: Sequence[str], longest: float = LONGEST) -> tuple[str, str]:
    """What a verb did, and what it said."""
    out, aside = io.StringIO(), io.StringIO()
    try:
        with _at_most(longest), redirect_stdout(out), redirect_stderr(aside):
            code = main(list(words))
    except _TooLongError:
        return HUNG, " ".join(words)
    except BaseException as error:
        return FAULTY, repr(error)
    said = f"{out.getvalue()}{aside.getvalue()}"
    if "internal error" in said or "Traceback (most" in said or not 0 <= code <= COULD_NOT_JUDGE:
        return FAULTY, said
    if re.search(r"^Failed: |\. Failed: ", said, re.MULTILINE):
        return FAULTY, said
    if "json" in words and out.getvalue():
        content = json.loads(out.getvalue())
        coverage = content.get("coverage", []) if isinstance(content, dict) else []
        if any(entry["state"] == "failed" for entry in coverage):
            return FAULTY, said
    return (RAW, repr(said)) if _CONTROL.search(said) else (ANSWERED, said)


def judged(
    case: Case, whole: Path, directory: Path, verbs: Sequence[Sequence[str]]
) -> list[tuple[str, str]]:
    """The verbs that did anything but answer, and what they said, for a copy of `whole`."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(whole, directory)
    case.change(directory)
    wrong = []
    for verb in verbs:
        new = directory.with_name("imported")
        shutil.rmtree(new, ignore_errors=True)
        words = [{"RUN": str(directory), "NEW": str(new)}.get(word, word) for word in verb]
        outcome, said = answer(words)
        if outcome != ANSWERED:
            wrong.append((outcome, f"{case.name}: {' '.join(verb)}: {said[-600:]}"))
    return wrong
