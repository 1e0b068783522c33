"""A tapped call behaves as before, whatever the tap does."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rlprobe.taps.hub import HUB
from rlprobe.taps.streams import Stream
from rlprobe.taps.wrapping import tap, tap_result


class Tracker:
    """Somebody's."""

    def __init__(self) -> None:
        self.logged: list[tuple[Any, ...]] = []

    def log(self, data: dict[str, Any], step: int | None = None) -> str:
        """Their documentation."""
        self.logged.append((data, step))
        if "bad" in data:
            raise ValueError("theirs")
        return f"logged at {step}"

    def outer(self, data: dict[str, Any]) -> str:
        return self.log(data, step=7)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, ...]]]:
    """What taps saw, of a class that is as it was after the test."""
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(Tracker, "log", Tracker.log)
    monkeypatch.setattr(Tracker, "outer", Tracker.outer)
    yield calls
    HUB.state.busy = False


def test_result_arguments_and_looks_are_as_before(seen: list[tuple[Any, ...]]) -> None:
    before = inspect.signature(Tracker.log)
    tap(Tracker, "log", lambda *args, **kwargs: seen.append((args[1:], kwargs)), "call")
    tracker = Tracker()
    assert tracker.log({"a": 1}, step=3) == "logged at 3"
    assert tracker.logged == [({"a": 1}, 3)]
    assert seen == [(({"a": 1},), {"step": 3})]
    assert inspect.signature(Tracker.log) == before
    assert (Tracker.log.__name__, Tracker.log.__doc__) == ("log", "Their documentation.")


def test_exceptions_are_theirs(seen: list[tuple[Any, ...]]) -> None:
    tap(Tracker, "log", lambda *args, **kwargs: seen.append(args[1:]), "call")
    with pytest.raises(ValueError, match="theirs"):
        Tracker().log({"bad": 1})
    assert len(seen) == 1
    assert not HUB.state.busy


def test_a_tap_that_fails_costs_nothing(
    seen: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[tuple[str, str]] = []
    monkeypatch.setattr(HUB, "fail", lambda source, error: failures.append((source, str(error))))

    def look(*args: Any, **kwargs: Any) -> None:
        raise KeyError("ours")

    tap(Tracker, "log", look, "call")
    assert Tracker().log({"a": 1}) == "logged at None"
    assert failures == [("call", "'ours'")]


def test_what_is_said_again_within_a_call_is_not_heard(seen: list[tuple[Any, ...]]) -> None:
    tap(Tracker, "log", lambda *args, **kwargs: seen.append(("log",)), "call")
    tap(Tracker, "outer", lambda *args, **kwargs: seen.append(("outer",)), "call")
    tracker = Tracker()
    assert tracker.outer({"a": 1}) == "logged at 7"
    assert seen == [("outer",)]
    thread = threading.Thread(target=lambda: tracker.log({"a": 1}))
    thread.start()
    thread.join()
    assert seen == [("outer",), ("log",)]


def test_tapping_twice_is_tapping_once(seen: list[tuple[Any, ...]]) -> None:
    for _ in range(2):
        tap(Tracker, "log", lambda *args, **kwargs: seen.append(args), "call")
    Tracker().log({"a": 1})
    assert len(seen) == 1
    tap(Tracker, "not_there", lambda: None, "call")
    assert not hasattr(Tracker, "not_there")


def test_a_result_is_looked_at(seen: list[tuple[Any, ...]]) -> None:
    tap_result(Tracker, "log", lambda result, *args, **kwargs: seen.append((result, args[1])), "c")
    assert Tracker().log({"a": 1}) == "logged at None"
    assert seen == [("logged at None", {"a": 1})]
    with pytest.raises(ValueError, match="theirs"):
        Tracker().log({"bad": 1})
    assert len(seen) == 1


def test_a_process_that_may_train_with_a_recorded_trainer_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys
    from types import ModuleType

    from rlprobe.taps.hub import Hub

    monkeypatch.setitem(sys.modules, "transformers.trainer", ModuleType("transformers.trainer"))
    hub = Hub()
    opened: list[int] = []
    monkeypatch.setattr(hub._streams, "_open", lambda number, stream: opened.append(number))
    taken: list[tuple[str, dict[str, Any]]] = []
    hub.row("wandb.log", Stream("wandb", 1), {"rows": 5.0})
    hub.be_hosted(lambda source, values: taken.append((source, dict(values))))
    hub.row("wandb.log", Stream("wandb", 1), {"mine": 1.0})
    assert taken == [("wandb.log", {"rows": 5.0}), ("wandb.log", {"mine": 1.0})]
    assert not opened
