"""What a reader did not expect costs the file that it read, and is said; other files go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlprobe import environment
from rlprobe.errors import InputError, RlprobeError, first_line

FAULT = "a fault of rlprobe's own"
_HINT = f"{environment.DEBUG}=1 shows the traceback; please report it with the file."


class ReaderFaultError(InputError):
    """A reader failed in a way that nobody thought of: a fault of rlprobe, not of the file."""


@contextmanager
def contained(path: Path, reader: str) -> Iterator[None]:
    """Turn whatever a reader raises into an InputError about its file.

    Raises:
        InputError: the file cannot be read from its disk.
        ReaderFaultError: anything else that is no error of rlprobe's own.
    """
    try:
        yield
    except RlprobeError:
        raise
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(f"Couldn't read '{path}': {why}") from error
    except Exception as error:
        raise fault(f"Couldn't read '{path}' as {reader}", error) from error


def fault(what: str, error: Exception) -> ReaderFaultError:
    """What could not be done, because of a fault of ours."""
    return ReaderFaultError(f"{what}: {described(error)}, {FAULT}", hint=_HINT)


def described(error: Exception) -> str:
    """What failed, in a few words: the type, and the first line of what it says."""
    name, words = type(error).__name__, first_line(error, 120)
    return name if words == name else f"{name} ({words})"
