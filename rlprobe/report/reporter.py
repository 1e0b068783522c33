"""What every output format offers, and how one is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from rlprobe.errors import UsageError

if TYPE_CHECKING:  # the command line reads this file before it knows whether it needs numpy
    from rlprobe.findings import ScanReport
    from rlprobe.gate import GateVerdict

FORMATS = ("text", "json", "markdown")  # each is a module of this package with `reporter(layout)`


@dataclass(frozen=True, slots=True)
class Layout:
    """How to lay a document out.

    Attributes:
        width: columns of the terminal.
        colour: escape codes are wanted.
        several: more than one run was asked for, even if only one could be read.
        quiet: the verdict alone.
    """

    width: int = 90
    colour: bool = False
    several: bool = False
    quiet: bool = False

    @property
    def columns(self) -> int:
        """The width, within what the screens are made for."""
        return max(40, min(self.width, 100))


class Reporter(Protocol):
    """Turns reports into one document."""

    def render(self, reports: Sequence[ScanReport], judged: GateVerdict | None = None) -> str:
        """The document, with the gate's word if there is one.

        Everything it says is in the reports: no run is read again.
        """
        ...


def reporter(name: str, layout: Layout) -> Reporter:
    """The reporter for a format.

    Raises:
        UsageError: there is no such format.
    """
    one_of(name, FORMATS)
    chosen: Reporter = import_module(f"rlprobe.report.{name}").reporter(layout)
    return chosen


def one_of(name: str, known: Sequence[str]) -> None:
    """Check the name of a format; UsageError if there is no such one."""
    if name not in known:
        raise UsageError(
            f"Couldn't write format '{name}': no such format", hint=f"One of {', '.join(known)}."
        )
