"""Values that no column can take: each costs itself, never the rows around it."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlprobe import Recorder
from rlprobe.recorder import batches, encode
from rlprobe.store import shards
from rlprobe.store.compaction import compact
from rlprobe.store.recording import Recording


class Raises:
    """Raises whatever it is given, whatever is asked of it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __float__(self) -> float:
        raise self.error

    def __str__(self) -> str:
        raise KeyError("no text")

    def __repr__(self) -> str:
        return type(self).__name__

    def __iter__(self) -> Iterator[Any]:
        raise KeyError("no entries")


class TensorLike(Raises):
    def detach(self) -> Any:
        raise OSError("device lost")

    def cpu(self) -> Any:
        raise self.error


class WithoutRepr:
    def __repr__(self) -> str:
        raise KeyError("x")


class Property:
    @property
    def detach(self) -> Any:
        raise OSError("device lost")

    def __float__(self) -> float:
        return 1.0


def cycle() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


ERRORS = [KeyError("x"), AttributeError("x"), MemoryError(), SystemExit(3), OSError("device lost")]
ODD: list[Any] = [
    *map(Raises, ERRORS),
    *map(TensorLike, ERRORS),
    Property(),
    WithoutRepr(),
    [WithoutRepr()],
    object(),
    cycle(),
    "text",
    "\ud800",
    b"\xff",
    1j,
    10**10_000,
    [[1], [1, 2]],
    ["a"],
    {"a": 1},
    np.array([1j]),
    np.array(["a"], dtype=object),
    lambda: None,
]
STEPS: list[Any] = [
    *[
        2**62,
        2**63,
        -(2**63) - 1,
        2**70,
        1e300,
        math.nan,
        math.inf,
        0.5,
        "seven",
        None,
        b"x",
        [],
        1j,
    ],
    *map(Raises, ERRORS),
]


def record(path: Path, odd: Any) -> Recording:
    """A run with something odd in the middle: rows before, beside and after it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recorder = Recorder(path, signals=False, flush_seconds=60)
        recorder.step(0, loss=0.0)
        recorder.flush()
        recorder.step(1, loss=1.0)
        odd(recorder)
        recorder.step(2, loss=2.0)
        recorder.samples(2, prompts=["p"], completions=["c"], rewards=[0.5])
        assert recorder.nan_detected(2, "loss") is True
        run = Recording(path)  # as a kill would leave it now
        assert [event.kind for event in run.events].count("nan_detected") >= 1
        recorder.step(3, loss=3.0)
        recorder.close()
    return Recording(path)


def check(run: Recording) -> None:
    loss = run.steps.series("loss")
    assert loss is not None
    assert [(s, v) for s, v in zip(loss.steps, loss.values, strict=True) if v == s] == [
        (step, step) for step in range(4)
    ]
    assert "c" in [rollout.completion for rollout in run.rollouts(2)]
    assert run.info.attempts[0].ended == "completed"
    assert run.problems == ()


def test_an_odd_metric_costs_itself(tmp_path: Path) -> None:
    def odd(recorder: Recorder) -> None:
        for index, value in enumerate(ODD):
            recorder.step(100 + index, odd=value, beside=1.0)

    run = record(tmp_path, odd)
    check(run)
    beside = run.steps.series("beside")
    assert beside is not None
    assert beside.steps.tolist() == list(range(100, 100 + len(ODD)))
    assert set(beside.values) == {1.0}
    assert f"{len(ODD) - 1} values that are no numbers" in run.info.health  # one has a number


def test_a_row_without_a_step_is_left_out_and_counted(tmp_path: Path) -> None:
    def odd(recorder: Recorder) -> None:
        for step in STEPS:
            recorder.step(step, loss=9.0)
            recorder.rank_step(step, loss=9.0)
            recorder.samples(step, prompts=["p"], completions=["a", "b"])

    run = record(tmp_path, odd)
    check(run)
    assert len(run.steps) == 4
    for text in ("{} steps", "{} ranks"):
        assert f"{text.format(len(STEPS))} rows without a step" in run.info.health
    assert f"{2 * len(STEPS)} samples rows without a step" in run.info.health


def test_a_step_of_another_type_is_a_step(tmp_path: Path) -> None:
    given: list[Any] = [3.0, np.int64(4), np.float32(5.0), True, np.array(6), -(2**61), "7"]
    with Recorder(tmp_path, signals=False) as recorder:
        for step in given:
            recorder.step(step, loss=1.0)
    assert Recording(tmp_path).steps.step.tolist() == [3, 4, 5, 1, 6, -(2**61), 7]


def test_an_event_with_an_odd_step_is_written(tmp_path: Path) -> None:
    steps = [step for step in STEPS if step is not None]

    def odd(recorder: Recorder) -> None:
        for step in steps:
            recorder.nan_detected(step, "weight", nan_count=3)

    run = record(tmp_path, odd)
    check(run)
    *first, last = (event for event in run.events if event.kind == "nan_detected")
    assert len(first) == len(steps)
    assert {(event.step, event.data["nan_count"]) for event in first} == {(None, 3)}
    assert all("given_step" in event.data for event in first)
    assert last.step == 2
    assert f"{len(steps)} event step kept as text" in run.info.health


def test_an_event_with_odd_data_is_written(tmp_path: Path) -> None:
    given = [*ODD, {(1, 2): 3}, {None: 1, 2: 3}, math.nan]

    def odd(recorder: Recorder) -> None:
        for step, value in enumerate(given):
            assert recorder.event("crash", "it died", step=step, value=value, fine=5) is True
            recorder.checkpoint(step, value)
            assert recorder.nan_detected(step, value, names=value) is True
            recorder.describe(config={f"value{step}": value, "fine": 6}, model=value)

    run = record(tmp_path, odd)
    check(run)
    crashes = [event for event in run.events if event.kind == "crash"]
    assert [event.step for event in crashes] == list(range(len(given)))
    assert {(event.message, event.data["fine"]) for event in crashes} == {("it died", 5)}
    assert all("value" in event.data for event in crashes)
    kinds = [event.kind for event in run.events]
    assert kinds.count("nan_detected") == len(given) + 1
    assert kinds.count("checkpoint") == len(given)
    assert set(run.info.settings) == {"fine", *(f"value{step}" for step in range(len(given)))}


def test_an_exception_without_a_text_is_a_crash(tmp_path: Path) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recorder = Recorder(tmp_path, signals=False)
        assert recorder.crash(MuteError(), step=3) is True
        assert recorder.crash(5, step=4) is True  # type: ignore[arg-type]
        recorder.close()
    run = Recording(tmp_path)
    assert [event.step for event in run.events if event.kind == "crash"] == [3, 4]
    assert run.info.attempts[0].ended == "crashed"


PER_ROLLOUT = ["rewards", "advantages", "completion_lengths", "truncated", "logprob_means", "kls"]
OF_ROLLOUTS: list[Any] = [
    *[[item, 1.0] for item in (Raises(KeyError("x")), Raises(SystemExit(3)), "a", 1j, [1, 2])],
    *[5, [1.0], object(), Raises(KeyError("x")), np.array([1j, 1.0])],
]


@pytest.mark.parametrize("name", PER_ROLLOUT)
def test_an_odd_value_of_a_rollout_costs_itself(tmp_path: Path, name: str) -> None:
    def odd(recorder: Recorder) -> None:
        for step, values in enumerate(OF_ROLLOUTS, 100):
            given: dict[str, Any] = {"rewards": [0.25, 0.75], name: values}
            recorder.samples(step, prompts=["p"], completions=["a", "b"], **given)
        infinite_value: dict[str, Any] = {name: [math.inf]}
        recorder.samples(99, prompts=["p"], completions=["a"], **infinite_value)

    run = record(tmp_path, odd)
    check(run)
    for step in range(100, 100 + len(OF_ROLLOUTS)):
        rollouts = run.rollouts(step)
        assert [rollout.completion for rollout in rollouts] == ["a", "b"]
        if name != "rewards":
            assert [rollout.reward for rollout in rollouts] == [0.25, 0.75]
        if name in {"rewards", "advantages"} and step < 105:
            assert [getattr(one, name.removesuffix("s")) for one in rollouts] == [None, 1.0]
    (infinite,) = run.rollouts(99)
    assert infinite.completion_length is None
    assert "rollout values left out" in run.info.health


def test_an_odd_text_of_a_rollout_costs_nothing(tmp_path: Path) -> None:
    odd_texts = ["\ud800", 5, None, Raises(ValueError("x")), cycle(), {1, 2}, WithoutRepr()]
    names = ["group_ids", "prompt_ids", "prompts", "completions"]
    calls = [(name, text) for name in names for text in odd_texts]

    def odd(recorder: Recorder) -> None:
        for step, (name, text) in enumerate(calls, 100):
            given: dict[str, Any] = {
                "prompts": ["p", "q"],
                "completions": ["a", "b"],
                name: [text, "fine"],
            }
            recorder.samples(step, **given)

    run = record(tmp_path, odd)
    check(run)
    assert [len(run.rollouts(step)) for step in range(100, 100 + len(calls))] == [2] * len(calls)


def test_reward_components_may_have_any_key(tmp_path: Path) -> None:
    keys = [0, None, "\ud800", (1, 2), Raises(KeyError("x"))]
    components = {**{key: [1.0, 2.0] for key in keys}, "fine": [3.0, 4.0]}
    run = record(
        tmp_path,
        lambda recorder: recorder.samples(
            1, prompts=["p"], completions=["a", "b"], reward_components=components
        ),
    )
    check(run)
    assert [rollout.reward_components["fine"] for rollout in run.rollouts(1)] == [3.0, 4.0]
    assert sorted(run.rollouts(1)[0].reward_components.values()) == [*[1.0] * len(keys), 3.0]


@pytest.mark.parametrize("shape", [(2, 2), (4,), (1, 4)])
def test_rewards_of_any_shape_are_read_in_order(tmp_path: Path, shape: tuple[int, ...]) -> None:
    rewards = np.arange(4.0).reshape(shape)
    with Recorder(tmp_path, signals=False) as recorder:
        recorder.samples(1, prompts=["p"], completions=list("abcd"), rewards=rewards)
    run = Recording(tmp_path)
    assert [rollout.reward for rollout in run.rollouts(1)] == [0.0, 1.0, 2.0, 3.0]
    assert run.info.health == ""


def test_rows_that_no_encoder_takes_cost_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = batches.Batches._table

    def picky(self: Any, table: str, rows: list[Any]) -> pa.Table:
        if table == "steps" and any(row[0] in {3, 70} for row in rows):
            raise pa.ArrowInvalid("no column can take it")
        return real(self, table, rows)

    monkeypatch.setattr(batches.Batches, "_table", picky)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Recorder(tmp_path, signals=False, flush_seconds=60) as recorder:
            for step in range(100):
                recorder.step(step, loss=1.0, odd="no number")
            assert recorder.flush() is False, "two rows could not be kept"
    run = Recording(tmp_path)
    assert sorted(set(range(100)) - set(run.steps.step.tolist())) == [3, 70]
    assert len(run.steps) == 98
    assert "2 dropped steps rows" in run.info.health
    assert "98 values that are no numbers" in run.info.health
    assert sum("no column can take it" in str(warning.message) for warning in caught) == 1


def test_many_names_make_many_shards_and_not_one_of_empty_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "MOST_COLUMNS", 50)
    monkeypatch.setattr(shards, "MOST_COLUMNS", 100)
    with Recorder(tmp_path, signals=False, flush_seconds=0.05) as recorder:
        for step in range(20):
            recorder.step(step, **{f"m/{step}/{name}": float(name) for name in range(20)})
        recorder.flush()
        time.sleep(0.3)  # a merge, if there were one
    run = Recording(tmp_path)
    assert run.steps.step.tolist() == list(range(20))
    assert len(run.steps.names) == 401
    files = list((tmp_path / "steps").iterdir())
    assert len(files) >= 10
    compact(tmp_path)
    assert len(Recording(tmp_path).steps.names) == 401
    assert run.info.health == ""


def test_each_kind_is_warned_of_once(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Recorder(tmp_path, signals=False) as recorder:
            for step in range(50):
                recorder.step(step, odd=object())
                recorder.step(2**64, loss=1.0)
                recorder.event("mine", step=2**64)
    assert len(caught) == 3
    run = Recording(tmp_path)
    dropped = [event.data for event in run.events if event.kind == "recorder_dropped"]
    assert sum(data.get("steps_rows_without_a_step", 0) for data in dropped) == 50


hostile = st.one_of(
    st.sampled_from([*ODD, *STEPS]),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.one_of(st.integers(), st.text(max_size=2), st.floats()), max_size=4),
    st.dictionaries(st.one_of(st.text(max_size=2), st.integers(), st.none()), st.floats()),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_is_given_the_rows_around_it_are_there(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    draw = data.draw

    def odd(recorder: Recorder) -> None:
        for _ in range(draw(st.integers(1, 4))):
            call = draw(st.integers(0, 5))
            first, second, third = draw(st.tuples(hostile, hostile, hostile))
            if call == 0:
                recorder.step(first, user_odd=second, user_other=third)
            elif call == 1:
                recorder.rank_step(first, user_odd=second, user_other=third)
            elif call == 2:
                recorder.samples(first, prompts=second, completions=third, rewards=second)
            elif call == 3:
                recorder.samples(
                    9, prompts=["p"], completions=["a", "b"], kls=first, reward_components=second
                )
            elif call == 4:
                recorder.event(first, second, step=third, data=second)
            else:
                recorder.nan_detected(first, second, names=third)

    check(record(tmp_path_factory.mktemp("run"), odd))
