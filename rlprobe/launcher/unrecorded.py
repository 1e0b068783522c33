"""What stands in for the recorder where nothing can be recorded: the command runs all the same."""

from __future__ import annotations

from typing import Any


class Unrecorded:
    """Takes what a recorder takes, and keeps nothing.

    Attributes:
        reason: why nothing is recorded.
    """

    run_dir = None

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def describe(self, **changes: Any) -> None:
        """Ignored."""

    def step(self, step: int | None = None, /, **metrics: Any) -> None:
        """Ignored."""

    def event(
        self, kind: str, message: str = "", /, *, step: int | None = None, **data: Any
    ) -> None:
        """Ignored."""

    def flush(self) -> None:
        """Ignored."""

    def close(self, status: str = "completed") -> None:
        """Ignored."""
