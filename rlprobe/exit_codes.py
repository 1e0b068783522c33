"""What the exit code of a command says."""

from __future__ import annotations

PASSED, FAILED, UNREADABLE, COULD_NOT_JUDGE, INTERRUPTED = 0, 1, 2, 3, 130

MEANINGS = {
    PASSED: "done, or judged and nothing at or above the bar",
    FAILED: "findings at or above the bar; `doctor`: nothing would be recorded as things are",
    UNREADABLE: "usage error, unreadable or unknown input (named, with what to try)",
    COULD_NOT_JUDGE: "could not judge: nothing checkable, too much of a log not understood, "
    "required coverage missing, a detector failed, or rlprobe itself did",
    INTERRUPTED: "interrupted from the keyboard",
}
