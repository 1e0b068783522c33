"""The Run interface: what a scan can ask of a recording or of a foreign log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlprobe.store.frame import Frame
from rlprobe.values import Attempt, Event, Problem, Rollout, Unread


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a run is, apart from its rows.

    Attributes:
        source: `recording`, or the importer's format name.
        settings: what is known of the run's configuration.
        notes: assumptions made while reading.
        health: what the recorder lost, in words; empty when nothing or nothing is known.
        unmapped: metrics kept under their own names because the vocabulary has none for them.
        unread: what looks like metrics in the log and was not understood, one entry per thing; a
            count of 0 says that all of it was.
        records_end: whether the source would tell how the run ended (a recording does, a log may
            not).
    """

    path: str
    id: str
    source: str
    framework: str | None = None
    algorithm: str | None = None
    model: str | None = None
    world_size: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()
    notes: tuple[str, ...] = ()
    health: str = ""
    unmapped: tuple[str, ...] = ()
    unread: tuple[Unread, ...] = ()
    records_end: bool = False


class Run(Protocol):
    """One run, wherever it comes from."""

    @property
    def info(self) -> RunInfo:
        """What the run is."""
        ...

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What could not be read, so far."""
        ...

    @property
    def steps(self) -> Frame:
        """Global metrics, one row per logged step and attempt."""
        ...

    @property
    def ranks(self) -> Frame:
        """Metrics of single ranks."""
        ...

    @property
    def events(self) -> tuple[Event, ...]:
        """Events in order of time."""
        ...

    def sample_steps(self) -> tuple[int, ...]:
        """Steps with recorded rollouts, ascending."""
        ...

    def rollouts(self, step: int) -> tuple[Rollout, ...]:
        """Rollouts of one step, group by group, all attempts."""
        ...
