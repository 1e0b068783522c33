"""What can go wrong in rlprobe's own work, as exceptions.

RlprobeError                  root; everything rlprobe raises on purpose
├── UsageError                the call itself makes no sense (flags, arguments)
├── ConfigError               a configuration file has an unknown key or a bad value
├── InputError                a path cannot be read as a run or a log
│   ├── UnknownFormatError    no importer recognises the content
│   ├── EmptyRunError         readable, but there is nothing in it
│   └── NewerFormatError      written by a newer rlprobe
├── StepNotFoundError         the run has no such step
├── DetectorError             a detector cannot be loaded or is not known
└── Inconclusive              a detector's own word: too little data to judge

Messages say what could not be done, to what (quoted), why; `hint` says what to try.
The command line prints both and exits with 2. `Inconclusive` never reaches a user as an error.
"""

from __future__ import annotations


def first_line(error: BaseException, most: int = 200) -> str:
    """The first line of what an error of somebody else's says, or else its type."""
    lines = str(error).strip().splitlines()
    return lines[0][:most] if lines else type(error).__name__


class RlprobeError(Exception):
    """Root of everything rlprobe raises on purpose.

    Attributes:
        hint: one sentence on what to try, or an empty string.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            self.add_note(f"Try: {hint}")  # which a traceback shows


class UsageError(RlprobeError):
    """The call itself makes no sense."""


class ConfigError(RlprobeError):
    """A configuration file has an unknown key or a value out of range."""


class InputError(RlprobeError):
    """A path cannot be read as a run or a log."""


class UnknownFormatError(InputError):
    """No importer recognises the content.

    Attributes:
        telling: whether lines in it look like metrics all the same.
    """

    telling = False


class EmptyRunError(InputError):
    """The input is readable, but there is nothing in it."""


class NewerFormatError(InputError):
    """The recording was written by a newer rlprobe."""


class StepNotFoundError(RlprobeError):
    """The run has no row for the step that was asked for."""


class DetectorError(RlprobeError):
    """A detector cannot be loaded, or its id is not known."""


class Inconclusive(RlprobeError):  # noqa: N818 - not an error: a verdict a detector gives
    """Raised inside a detector's `scan` when a rule has too little data to judge.

    Findings yielded before it are kept: facts come first, statistics after.
    """
