"""The recorder in one process: what goes in comes out, and nothing raises into training."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlprobe import Recorder, SamplePolicy
from rlprobe.errors import InputError, UsageError
from rlprobe.store.recording import Recording
from rlprobe.values import Series


def values(run: Recording, name: str) -> list[float]:
    series = run.steps.series(name)
    assert series is not None, f"{name} was never logged"
    return [float(value) for value in series.values]


def series(run: Recording, name: str) -> Series:
    found = run.steps.series(name)
    assert found is not None
    return found


def test_scalars_of_every_kind_come_back(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.step(1, loss=0.5, lr=np.float32(0.25), n=np.int64(7), flag=True, big=10**300)
        recorder.step(2, loss=np.float64(1.5), lr=np.array(0.125), n=3, flag=False, big=1)
    run = Recording(tmp_path)
    assert values(run, "loss") == [0.5, 1.5]
    assert values(run, "lr") == [0.25, 0.125]
    assert values(run, "n") == [7.0, 3.0]
    assert values(run, "flag") == [1.0, 0.0]
    assert values(run, "big") == [1e300, 1.0]


def test_none_is_not_logged_and_nan_is_a_value(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.step(1, loss=None, kl_mean=1.0)
        recorder.step(2, loss=math.nan, kl_mean=math.inf)
        recorder.step(3, kl_mean=-math.inf)
    run = Recording(tmp_path)
    loss = series(run, "loss")
    assert list(loss.steps) == [2]
    assert math.isnan(loss.values[0])
    assert values(run, "kl_mean") == [1.0, math.inf, -math.inf]


def test_plain_names_get_their_canonical_name(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.step(1, reward=0.5, learning_rate=1e-6, my_own=3.0)
    run = Recording(tmp_path)
    assert values(run, "reward_mean") == [0.5]
    assert values(run, "lr") == [1e-6]
    assert run.info.unmapped == ("my_own",)


def test_trl_names_and_sentinels(tmp_path: Path) -> None:
    with Recorder(tmp_path, framework="trl") as recorder:
        recorder.step(
            1,
            **{
                "completion_length": 9.0,
                "completions/mean_length": 7.0,
                "completions/mean_terminated_length": 0.0,
                "rewards/acc/mean": 0.5,
                "eval_reward": 0.25,
            },
        )
    run = Recording(tmp_path)
    assert values(run, "completion_length_mean") == [7.0]
    assert run.steps.series("terminated_length_mean") is None
    assert values(run, "reward_component/acc") == [0.5]
    assert values(run, "eval/reward_mean") == [0.25]


def test_another_frameworks_sign_becomes_ours(tmp_path: Path) -> None:
    with Recorder(tmp_path, framework="sb3") as recorder:
        recorder.step(1, **{"train/entropy_loss": -0.75})
        recorder.step(2, **{"train/entropy_loss": -0.5, "train/loss": None})
    assert values(Recording(tmp_path), "entropy") == [0.75, 0.5]


def test_arrays_become_distributions(tmp_path: Path) -> None:
    rewards = np.array([[0.1, 0.1, 0.1, 0.1], [0.0, 1.0, 0.0, 1.0]])
    with Recorder(tmp_path) as recorder:
        recorder.step(1, rewards=rewards, completion_lengths=[1, 2, 3, 10], empty=[])
        rewards += 100  # what was recorded must not change with it
    run = Recording(tmp_path)
    assert values(run, "reward_mean") == [pytest.approx(0.3)]
    assert values(run, "reward_max") == [1.0]
    assert values(run, "reward_group_std_mean") == [pytest.approx(0.25)]
    assert values(run, "zero_variance_group_fraction") == [0.5]
    assert values(run, "completion_length_p95") == [pytest.approx(8.95)]


def test_rounding_noise_inside_a_group_is_no_variance(tmp_path: Path) -> None:
    noisy = np.float32(0.1) + np.array([0.0, 7e-9, 0.0, 7e-9], dtype=np.float64)
    with Recorder(tmp_path) as recorder:
        recorder.step(1, rewards=np.stack([noisy, noisy]))
    assert values(Recording(tmp_path), "zero_variance_group_fraction") == [1.0]


def test_a_value_that_is_no_number_costs_that_value_only(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Recorder(tmp_path) as recorder:
            recorder.step(1, loss=1.0, note="fine", thing=object(), z=1j)
            recorder.step(2, loss=2.0, note="fine")
    assert sum("'note' is no number" in str(warning.message) for warning in caught) == 1
    run = Recording(tmp_path)
    assert values(run, "loss") == [1.0, 2.0]
    assert run.info.health == "4 values that are no numbers"


@pytest.mark.parametrize(
    "name",
    ["a b", "a/b", 'it\'s "quoted"', "\x1b[31mred", "[bold]x[/bold]", "n" * 10_000, "\ud800", "é"],
)
def test_any_metric_name_is_kept(tmp_path: Path, name: str) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.step(1, **{name: 1.0, "loss": 2.0})
    run = Recording(tmp_path)
    stored = name.encode("utf-8", "backslashreplace").decode()
    assert values(run, stored) == [1.0]
    assert values(run, "loss") == [2.0]


@pytest.mark.parametrize("name", ["attempt", "time", "step"])
def test_a_metric_named_like_a_column_keeps_its_value(tmp_path: Path, name: str) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.step(4, **{name: 1.5})
    assert values(Recording(tmp_path), f"user/{name}") == [1.5]


def test_repeated_and_decreasing_steps_lose_nothing(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.step(5, loss=1.0)
        recorder.step(5, reward=0.5)
        recorder.step(3, loss=3.0)
        recorder.step(5, loss=9.0)
    run = Recording(tmp_path)
    loss = series(run, "loss")
    assert list(loss.steps) == [3, 5]
    assert list(loss.values) == [3.0, 9.0]
    assert values(run, "reward_mean") == [0.5]
    assert run.steps.step.tolist() == [5, 3]


def test_nothing_raises_into_training(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        recorder.step(None, loss=1.0)
        recorder.step("seven", loss=1.0)  # type: ignore[arg-type]
        recorder.samples(1, prompts=None, completions=3)  # type: ignore[arg-type]
        recorder.event("odd", step="x", data={1, 2})  # type: ignore[arg-type]
        recorder.step(2, loss=2.0)
        recorder.close()
    said = " ".join(str(warning.message) for warning in caught)
    assert all(word in said for word in ("is no step", "completions", "event's step is odd"))
    assert values(Recording(tmp_path), "loss") == [2.0]
    recorder.step(3, loss=3.0)  # after the end: ignored, not an error
    recorder.close()


def test_a_full_disk_does_not_reach_training_and_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tmp_path, flush_seconds=60)
    sink = recorder._sink
    write = sink.write

    def full(table: str, content: Any, rows: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sink, "write", full)
    recorder.step(1, loss=1.0)
    with pytest.warns(RuntimeWarning, match="No space left"):
        assert recorder.flush() is False
    monkeypatch.setattr(sink, "write", write)
    recorder.step(2, loss=2.0)
    assert recorder.flush() is True
    recorder.close()
    run = Recording(tmp_path)
    assert values(run, "loss") == [1.0, 2.0]
    assert "write failures" in run.info.health


def test_only_rank_0_writes_global_scalars(tmp_path: Path) -> None:
    with (
        Recorder(tmp_path, rank=0, world_size=2, launch="L") as first,
        Recorder(tmp_path, rank=1, world_size=2, launch="L") as second,
    ):
        for recorder in (first, second):
            recorder.step(1, loss=1.0)
            recorder.rank_step(1, loss=float(recorder.rank_id))
    run = Recording(tmp_path)
    assert len(run.steps) == 1
    by_rank = run.ranks.series_by_rank("loss")
    assert {rank: list(found.values) for rank, found in by_rank.items()} == {0: [0.0], 1: [1.0]}
    assert [attempt.number for attempt in run.info.attempts] == [1]


def test_rank_is_the_earlier_name_of_rank_step(tmp_path: Path) -> None:
    with Recorder(tmp_path, rank=3) as recorder:
        recorder.rank(1, loss=0.5)
        recorder.rank_step(2, loss=0.25)
    assert Recording(tmp_path).ranks.series_by_rank("loss")[3].values.tolist() == [0.5, 0.25]


def test_a_second_launch_is_a_second_attempt_even_with_the_same_key(tmp_path: Path) -> None:
    for loss in (1.0, 2.0):
        with Recorder(tmp_path, rank=0, world_size=8, launch="same") as recorder:
            recorder.step(1, loss=loss)
    run = Recording(tmp_path)
    assert [attempt.number for attempt in run.info.attempts] == [1, 2]
    assert len(run.steps) == 2
    assert values(run, "loss") == [2.0]


def test_threads_may_record_at_once(tmp_path: Path) -> None:
    with Recorder(tmp_path, flush_seconds=0.01) as recorder:

        def work(worker: int) -> None:
            for step in range(500):
                recorder.step(step * 8 + worker, loss=float(worker))

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    loss = series(Recording(tmp_path), "loss")
    assert list(loss.steps) == list(range(4000))
    assert np.array_equal(loss.values, loss.steps % 8)


def test_checkpoint_and_events_keep_their_data(tmp_path: Path) -> None:
    with Recorder(tmp_path, config={"beta": 0.04}) as recorder:
        recorder.checkpoint(100, "ckpt/100", state={"model": True, "rng": False})
        recorder.nan_detected(101, "weight", nan_count=3, names=["a", "b"])
        recorder.event("curriculum_changed", "hard \x1b[2J prompts", step=102, kind="mine")
    run = Recording(tmp_path)
    events = {event.kind: event for event in run.events}
    assert events["checkpoint"].data == {"path": "ckpt/100", "has": ["model"], "lacks": ["rng"]}
    assert events["nan_detected"].data["names"] == ["a", "b"]
    assert events["nan_detected"].step == 101
    assert events["curriculum_changed"].data == {"kind": "mine"}
    assert run.info.settings == {"beta": 0.04}
    assert run.info.attempts[0].ended == "completed"


def test_an_exception_in_the_with_block_is_a_crash(tmp_path: Path) -> None:
    def train() -> None:
        with Recorder(tmp_path) as recorder:
            recorder.step(7, loss=1.0)
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")

    with pytest.raises(RuntimeError):
        train()
    run = Recording(tmp_path)
    crash = next(event for event in run.events if event.kind == "crash")
    assert crash.step == 7
    assert crash.data["kind"] == "nan_probabilities"
    assert run.info.attempts[0].ended == "crashed"


class TestSamples:
    def record(self, path: Path, policy: SamplePolicy, *, groups: int = 3) -> Recording:
        with Recorder(path, samples=policy) as recorder:
            for step in (1, 2):
                recorder.samples(
                    step,
                    prompts=[f"p{group}" for group in range(groups)],
                    completions=[f"text {n} " + "x" * 100 for n in range(groups * 2)],
                    rewards=np.arange(groups * 2, dtype=np.float32),
                    reward_components={"acc": [1.0] * (groups * 2), "fmt": [None] * (groups * 2)},
                    advantages=[0.5, -0.5] * (groups - 1) + [9.0, -9.0],
                    truncated=[True] + [False] * (groups * 2 - 1),
                    group_size=2,
                )
        return Recording(path)

    def test_whole_rollouts_come_back(self, tmp_path: Path) -> None:
        run = self.record(tmp_path, SamplePolicy())
        assert run.sample_steps() == (1, 2)
        rollouts = run.rollouts(1)
        assert len(rollouts) == 6
        first = rollouts[0]
        assert (first.prompt, first.reward, first.truncated) == ("p0", 0.0, True)
        assert first.reward_components == {"acc": 1.0}
        assert rollouts[1].group_id == first.group_id != rollouts[2].group_id
        assert first.prompt_id == run.rollouts(2)[0].prompt_id

    def test_groups_are_whole_and_the_widest_comes_first(self, tmp_path: Path) -> None:
        run = self.record(tmp_path, SamplePolicy(groups=1, ring_steps=0))
        rollouts = run.rollouts(1)
        assert [rollout.advantage for rollout in rollouts] == [9.0, -9.0]
        assert rollouts[0].capture_reason == "widest advantages"

    @pytest.mark.parametrize(
        ("text", "expected"), [("none", None), ("hash", "16 digits"), ("truncated:10", "short")]
    )
    def test_text_policies(self, tmp_path: Path, text: str, expected: str | None) -> None:
        completion = self.record(tmp_path, SamplePolicy(text=text)).rollouts(1)[0].completion
        if expected is None:
            assert completion is None
        elif expected == "16 digits":
            assert completion is not None
            assert len(completion) == 16
        else:
            assert completion is not None
            assert completion.startswith("text ")
            assert "97 characters left out" in completion

    def test_the_ring_is_written_by_a_critical_event(self, tmp_path: Path) -> None:
        recorder = Recorder(tmp_path, samples=SamplePolicy(every=0, ring_steps=2))
        for step in (1, 2, 3):
            recorder.samples(step, prompts=["p"], completions=["a", "b"], group_size=2)
        recorder.nan_detected(3, "loss")
        recorder.close()
        run = Recording(tmp_path)
        assert run.sample_steps() == (2, 3)
        assert run.rollouts(3)[0].capture_reason == "ring:nan_detected"

    def test_a_bad_policy_is_refused(self) -> None:
        with pytest.raises(UsageError, match="shortish"):
            SamplePolicy(text="shortish")


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(InputError, match="Couldn't record into"):
        Recorder(file)
    with pytest.raises(UsageError, match="'nobody'"):
        Recorder(tmp_path / "run", framework="nobody")


def test_the_manifest_says_what_was_told(tmp_path: Path) -> None:
    with Recorder(tmp_path, algorithm="GRPO", model="tiny", config={"beta": 0.1}) as recorder:
        recorder.describe(config={"lr": 1e-6})
    manifest = json.loads((tmp_path / "run.json").read_text())
    assert manifest["config"] == {"beta": 0.1, "lr": 1e-6}
    assert manifest["algorithm"] == "GRPO"
    assert manifest["attempts"][0]["ended"] == "completed"
    assert manifest["format_version"] == 1
    assert os.path.basename(str(tmp_path)) in manifest["id"]  # noqa: PTH119


numbers = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(2**53), 2**53) | st.none()
rows = st.lists(st.dictionaries(st.text(min_size=1, max_size=8), numbers, max_size=5), max_size=20)


@settings(max_examples=40, deadline=None)
@given(rows=rows, flushes=st.sets(st.integers(0, 19)))
def test_every_value_comes_back_whatever_the_keys_and_flushes(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], flushes: set[int]
) -> None:
    path = tmp_path_factory.mktemp("run")
    with Recorder(path, flush_seconds=60, signals=False) as recorder:
        for step, row in enumerate(rows):
            recorder.step(step, **{f"user/x{name}": value for name, value in row.items()})
            if step in flushes:
                recorder.flush()
    run = Recording(path)
    expected: dict[tuple[str, int], float] = {}
    for step, row in enumerate(rows):
        for name, value in row.items():
            if value is not None:
                stored = f"user/x{name}".encode("utf-8", "backslashreplace").decode()
                expected[stored, step] = float(value)
    recorded = {
        (name, int(step)): float(value)
        for name in run.steps.names
        if (logged := run.steps.series(name)) is not None
        for step, value in zip(logged.steps, logged.values, strict=True)
    }
    assert recorded.keys() == expected.keys()
    assert all(
        recorded[key] == value or (math.isnan(recorded[key]) and math.isnan(value))
        for key, value in expected.items()
    )


def test_rows_after_the_end_of_training_are_still_recorded(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.step(1, loss=1.0)
        recorder.finish()
        recorder.step(1, **{"eval/reward_mean": 0.5})
    run = Recording(tmp_path)
    assert values(run, "eval/reward_mean") == [0.5]
    assert [event.kind for event in run.events].count("run_ended") == 1
    assert run.info.attempts[0].ended == "completed"


def test_a_crash_after_the_end_of_training_is_a_crash(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.finish()
    recorder._process.on_exception(ValueError("no such file"))
    recorder.close()
    assert Recording(tmp_path).info.attempts[0].ended == "crashed"


def test_the_world_size_is_that_of_the_ranks(tmp_path: Path) -> None:
    for rank in (-1, 0, 3):
        Recorder(tmp_path, rank=rank, world_size=1, launch="L").close()
    (attempt,) = Recording(tmp_path).info.attempts
    assert attempt.world_size == 4


def test_a_rollout_that_no_column_holds_costs_no_other(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.samples(
            1,
            prompts=["p", "p"],
            completions=["a", "b"],
            group_ids=["\ud800", "\ud800"],
            completion_lengths=[2**40, 7],
        )
        recorder.samples(2, prompts=["p"], completions=["c"])
    run = Recording(tmp_path)
    assert [rollout.completion_length for rollout in run.rollouts(1)] == [None, 7]
    assert [rollout.completion for rollout in run.rollouts(2)] == ["c"]
    assert "1 rollout values left out" in run.info.health


def test_no_random_numbers_of_training_are_drawn(tmp_path: Path) -> None:
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), pickle.dumps(np.random.get_state())
    with Recorder(tmp_path, flush_seconds=0.01) as recorder:
        for step in range(20):
            recorder.step(step, loss=1.0, rewards=np.zeros(4))
            recorder.samples(step, prompts=["p"], completions=["a", "b"], group_size=2)
            recorder.nan_detected(step, "loss")
    after = random.getstate(), pickle.dumps(np.random.get_state())
    assert after == before
