"""Run our own code inside somebody's training: it may fail, and training must not notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Relay:
    """Stands for the current recorder: a trainer that trains again gets a new one."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)


class Probes:
    """Calls probes; one that fails is switched off, with one event."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder
        self.disabled: set[str] = set()

    def run(self, name: str, probe: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The probe's result; None if it fails or failed before."""
        if name in self.disabled:
            return None
        try:
            return probe(*args, **kwargs)
        except Exception as error:
            self.disabled.add(name)
            self.recorder.event(
                "probe_disabled",
                f"{name}: {type(error).__name__}: {str(error)[:300]}",
                probe=name,
                exception=type(error).__name__,
            )
            return None
