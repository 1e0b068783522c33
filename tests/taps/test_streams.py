"""Which trackers tell of the same run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlprobe.taps.streams import Run, Stream, Streams


class Kept:
    """A run that keeps what it is told."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.rows: list[tuple[int, dict[str, Any]]] = []
        self.axes: list[str] = []
        self.config: dict[str, Any] = {}
        self.finished = False

    @property
    def last_step(self) -> int:
        return max((step for step, _ in self.rows), default=-1)

    def row(
        self, source: str, stream: Stream, values: Mapping[str, Any], step: int, *, axes: bool
    ) -> None:
        self.rows.append((step, dict(values)))

    def axis(self, name: str) -> None:
        self.axes.append(name)

    def settings(self, config: Mapping[str, Any]) -> None:
        self.config.update(config)

    def summary(self, source: str, values: Mapping[str, Any]) -> None:
        self.config["summary"] = dict(values)

    def text(self, source: str, name: str, text: str, step: int | None) -> None:
        self.config[name] = text

    def crash(self, error: BaseException) -> None:
        pass

    def finish(self) -> None:
        self.finished = True

    def give_way(self) -> bool:
        return len(self.rows) <= 10

    def close(self) -> None:
        """Nothing to do."""


class Told:
    """Streams, and the runs that they are joined to."""

    def __init__(self) -> None:
        self.opened: list[Kept] = []
        self.streams = Streams(self.open)

    def open(self, number: int, stream: Stream) -> Run:
        self.opened.append(Kept(number))
        return self.opened[-1]

    def tell(self, stream: Stream, step: int, **values: float) -> None:
        run = self.streams.join(stream, step)
        assert run is not None
        run.row("call", stream, values, step, axes=False)


def writer(folder: str) -> Stream:
    return Stream("tensorboard", folder, folder)


def test_two_kinds_of_trackers_tell_of_one_run() -> None:
    told = Told()
    for step in range(3):
        told.tell(Stream("wandb", "a"), step, loss=1.0)
        told.tell(writer("runs/a"), step, lr=0.1)
    assert [len(run.rows) for run in told.opened] == [6]


def test_the_second_of_a_kind_tells_of_the_second_run() -> None:
    told = Told()
    for name in ("a", "b"):
        told.tell(Stream("wandb", name), 0, loss=1.0)
        told.tell(writer(f"runs/{name}"), 0, lr=0.1)
    assert [len(run.rows) for run in told.opened] == [2, 2]
    assert [run.finished for run in told.opened] == [True, False]


def test_a_writer_for_evaluations_tells_of_the_run_beside_it() -> None:
    told = Told()
    told.tell(writer("logs/train"), 10, loss=1.0)
    told.tell(writer("logs/validation/"), 9, loss=2.0)
    told.tell(writer("others/a"), 11, loss=3.0)
    (run, other) = told.opened
    assert run.rows == [(10, {"loss": 1.0}), (9, {"eval/loss": 2.0})]
    assert other.rows == [(11, {"loss": 3.0})]


def test_below_the_writer_for_training() -> None:
    told = Told()
    told.tell(writer("logs"), 10, loss=1.0)
    told.tell(writer("logs/eval"), 9, loss=2.0)
    assert told.opened[0].rows[1] == (9, {"eval/loss": 2.0})


def test_a_logger_that_goes_on_and_one_that_begins_anew() -> None:
    told = Told()
    told.tell(Stream("sb3", 1, goes_on=True), 2048, loss=1.0)
    told.tell(Stream("sb3", 2, goes_on=True), 4096, loss=1.0)
    told.tell(Stream("sb3", 3, goes_on=True), 2048, loss=1.0)
    assert [[step for step, _ in run.rows] for run in told.opened] == [[2048, 4096], [2048]]


def test_what_is_told_before_the_first_row_is_kept_for_it() -> None:
    told = Told()
    stream = Stream("wandb", "a")
    told.streams.declare(stream, "train/step")
    told.streams.settings(stream, {"lr": 1})
    told.streams.settings(stream, {"beta": 2})
    assert not told.opened
    told.tell(stream, 0, loss=1.0)
    assert told.opened[0].axes == ["train/step"]
    assert told.opened[0].config == {"lr": 1, "beta": 2}
    told.streams.settings(stream, {"lr": 3})
    assert told.opened[0].config["lr"] == 3
