"""Packages that do not run on this machine, by the calls that they publish; and calls of others.

The stand-ins are ours: classes with the published signatures that hand on to nothing.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rlprobe.importers import step_axis
from rlprobe.taps import streams
from rlprobe.taps.hub import HUB
from rlprobe.taps.packages import (
    aim,
    clearml,
    comet,
    mlflow,
    neptune,
    ray,
    stacks,
    swanlab,
    wandb,
)

Row = tuple[dict[str, Any], int | None]


class Heard:
    """What the hub was handed."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.streams: list[streams.Stream] = []
        self.settings: dict[str, Any] = {}
        self.axes: list[str] = []

    def row(
        self,
        source: str,
        stream: streams.Stream,
        values: dict[str, Any],
        step: int | None = None,
        *,
        axes: bool = False,
    ) -> None:
        if values:
            self.rows.append((dict(values), step))
            self.streams.append(stream)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    there = Heard()
    monkeypatch.setattr(HUB, "row", there.row)
    monkeypatch.setattr(HUB, "settings", lambda stream, config: there.settings.update(config))
    monkeypatch.setattr(HUB, "axis", lambda stream, name: there.axes.append(name))
    return there


def test_verl(heard: Heard) -> None:
    class Tracking:
        def log(self, data: Any, step: Any, backend: Any = None) -> None:
            pass

    stacks.install(SimpleNamespace(Tracking=Tracking))
    Tracking().log(data={"actor/pg_loss": 0.5, "note": "text"}, step=3)
    Tracking().log({"actor/pg_loss": 0.25}, 4, backend=["console"])
    assert heard.rows == [({"actor/pg_loss": 0.5}, 3), ({"actor/pg_loss": 0.25}, 4)]


def test_skyrl(heard: Heard) -> None:
    class Tracking:
        def log(self, data: Any, step: Any, commit: bool = False) -> None:
            pass

    stacks.install(SimpleNamespace(Tracking=Tracking))
    Tracking().log({"reward/avg_raw_reward": 1.0}, step=1, commit=False)
    Tracking().log({"timing/step": 2.0}, step=1, commit=True)
    assert heard.rows == [({"reward/avg_raw_reward": 1.0}, 1), ({"timing/step": 2.0}, 1)]


@pytest.mark.parametrize("name", ["WandbLogger", "TensorboardLogger"])
def test_openrlhf(heard: Heard, name: str) -> None:
    class Logger:
        def log_train(self, global_step: int, logs_dict: dict[str, Any]) -> None:
            logs_dict.pop("generated_samples", None)

        def log_eval(self, global_step: int, logs_dict: dict[str, Any]) -> None:
            pass

    stacks.install(SimpleNamespace(**{name: Logger}))
    Logger().log_train(7, {"reward": 0.5, "kl": None, "generated_samples": ["a text", 1.0]})
    Logger().log_eval(7, {"acc": 0.25})
    assert heard.rows == [({"train/reward": 0.5}, 7), ({"eval/acc": 0.25}, 7)]


def test_nemo_rl(heard: Heard) -> None:
    class Logger:
        def log_metrics(
            self,
            metrics: dict[str, Any],
            step: int,
            prefix: str | None = "",
            step_metric: str | None = None,
            step_finished: bool = False,
        ) -> None:
            pass

        def log_hyperparams(self, params: Any) -> None:
            pass

    stacks.install(SimpleNamespace(Logger=Logger))
    logger = Logger()
    logger.log_hyperparams({"grpo": {"num_prompts_per_step": 8}})
    logger.log_metrics({"loss": 0.5}, 2, prefix="train", step_finished=True)
    logger.log_metrics({"accuracy": 1.0}, 2, prefix="validation")
    logger.log_metrics({"node.0.gpu.0.util": 90.0, "ray/ray_step": 610}, 610, "ray", "ray/ray_step")
    assert heard.rows == [({"train/loss": 0.5}, 2), ({"validation/accuracy": 1.0}, 2)]
    assert heard.settings == {"grpo": {"num_prompts_per_step": 8}}


def test_wandb_axes_of_evaluations_are_not_the_runs(heard: Heard) -> None:
    class Run:
        id = "a"
        config: dict[str, Any] = {}  # noqa: RUF012 - as short as it can be

        def log(self, data: Any, step: Any = None, commit: Any = None) -> None:
            pass

        def define_metric(self, name: str, step_metric: Any = None, **_: Any) -> None:
            pass

    wandb.install(SimpleNamespace(Run=Run))
    run = Run()
    run.define_metric("val/*", step_metric="val_step")
    run.define_metric("eval.accuracy", "epoch")
    run.define_metric("*", step_metric="train/global_step")
    run.define_metric("train/*", step_metric=SimpleNamespace(name="updates"))
    assert heard.axes == ["train/global_step", "updates"]


def test_the_words_for_evaluations_are_the_readers() -> None:
    assert streams.EVALUATION == step_axis.EVALUATION


def test_aim_tells_subsets_and_counts_each_name(heard: Heard) -> None:
    class Run:
        hash = "abc"

        def track(
            self,
            value: Any,
            name: str | None = None,
            step: int | None = None,
            epoch: int | None = None,
            *,
            context: Any = None,
        ) -> None:
            pass

    aim.install(SimpleNamespace(Run=Run))
    run = Run()
    run.track(0.5, name="loss", step=3, context={"subset": "train"})
    run.track(0.75, "loss", 3, context={"subset": "val"})
    run.track({"a": 1, "b": 2}, step=4)
    run.track("a text", name="text")
    assert heard.rows == [
        ({"loss": 0.5}, 3), ({"val/loss": 0.75}, 3), ({"a": 1, "b": 2}, 4),
    ]  # fmt: skip


def test_clearml_names_by_title_and_series(heard: Heard) -> None:
    class Logger:
        def report_scalar(self, title: str, series: str, value: float, iteration: int) -> None:
            pass

        def report_single_value(self, name: str, value: float) -> None:
            pass

    clearml.install(SimpleNamespace(Logger=Logger))
    Logger().report_scalar("loss", "train", iteration=5, value=0.5)
    Logger().report_scalar("loss", "loss", 0.25, 6)
    assert heard.rows == [({"loss/train": 0.5}, 5), ({"loss": 0.25}, 6)]


def test_comet_at_the_step_that_was_set(heard: Heard) -> None:
    class CometExperiment:
        curr_step: int | None = None

        def log_metric(self, name: str, value: Any, step: Any = None, epoch: Any = None) -> None:
            pass

        def log_metrics(self, dic: Any, prefix: Any = None, step: Any = None) -> None:
            pass

        def log_parameters(self, parameters: Any) -> None:
            pass

    comet.install(SimpleNamespace(CometExperiment=CometExperiment))
    experiment = CometExperiment()
    experiment.log_metric("loss", 0.5, step=2)
    experiment.curr_step = 9
    experiment.log_metrics({"kl": 0.25}, prefix="train")
    assert heard.rows == [({"loss": 0.5}, 2), ({"train_kl": 0.25}, 9)]


def test_mlflow_without_steps_and_many_at_once(heard: Heard) -> None:
    class MlflowClient:
        def log_metric(
            self, run_id: str, key: str, value: float, timestamp: Any = None, step: Any = None
        ) -> None:
            pass

        def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
            pass

        def log_param(self, run_id: str, key: str, value: Any) -> None:
            pass

    def log_metric(key: str, value: float, step: int | None = None) -> None:
        MlflowClient().log_metric("a", key, value, None, step or 0)

    def log_metrics(metrics: dict[str, float], step: int | None = None) -> None:
        many = [SimpleNamespace(key=key, value=metrics[key], step=step or 0) for key in metrics]
        MlflowClient().log_batch(run_id="a", metrics=many)

    mlflow.install(SimpleNamespace(MlflowClient=MlflowClient))
    fluent = SimpleNamespace(
        MlflowClient=MlflowClient, log_metric=log_metric, log_metrics=log_metrics
    )
    mlflow.install(fluent)
    for value in (0.5, 0.25):
        fluent.log_metric("loss", value)
    fluent.log_metric("loss", 0.125, step=0)
    fluent.log_metric("loss", 0.125, 7)
    fluent.log_metrics({"kl": 1.0, "lr": 2.0})
    fluent.log_metrics({"kl": 3.0, "lr": 4.0}, 9)
    assert heard.rows == [
        ({"loss": 0.5}, 0),
        ({"loss": 0.25}, 1),
        ({"loss": 0.125}, 0),
        ({"loss": 0.125}, 7),
        ({"kl": 1.0, "lr": 2.0}, 0),
        ({"kl": 3.0, "lr": 4.0}, 9),
    ]


def test_neptune_counts_what_has_no_step(heard: Heard) -> None:
    class Handler:
        def __init__(self, path: str, container: Any) -> None:
            self._path, self._container = path, container

        def append(self, value: Any, *, step: Any = None, timestamp: Any = None) -> None:
            pass

        def extend(self, values: Any, *, steps: Any = None) -> None:
            pass

    neptune.install(SimpleNamespace(Handler=Handler))
    container = SimpleNamespace()
    loss = Handler("train/loss", container)
    loss.append(0.5)
    loss.append(0.25)
    loss.extend([1.0, 2.0], steps=[7, 8])
    Handler("train", container).append({"kl": 0.125}, step=9)
    assert heard.rows == [
        ({"train/loss": 0.5}, 0),
        ({"train/loss": 0.25}, 1),
        ({"train/loss": 1.0}, 7),
        ({"train/loss": 2.0}, 8),
        ({"train/kl": 0.125}, 9),
    ]


@pytest.mark.parametrize("name", ["Run", "SwanLabRun"])
def test_swanlab_of_both_names(heard: Heard, name: str) -> None:
    class Run:
        def log(self, data: Any, step: Any = None, print_to_console: bool = False) -> None:
            pass

    swanlab.install(SimpleNamespace(**{name: Run}))
    Run().log({"loss": 0.5, "inner": {"lr": 0.1}}, step=4)
    assert heard.rows == [({"loss": 0.5, "inner/lr": 0.1}, 4)]


def test_what_an_algorithm_of_ray_returns(heard: Heard) -> None:
    class Trainable:
        trial_id = "default"

        def train(self) -> dict[str, Any]:
            learner = {"default_policy": {"policy_loss": 0.5}}
            return {"training_iteration": 3, "learners": learner, "config": {"lr": 1.0}}

    ray.install(SimpleNamespace(Trainable=Trainable))
    result = Trainable().train()
    assert result["config"] == {"lr": 1.0}
    name = "learners/default_policy/policy_loss"
    assert heard.rows == [({"training_iteration": 3, name: 0.5}, 3)]


def test_a_function_of_ray_tune_reports_once(heard: Heard) -> None:
    class Trainable:
        trial_id = "a_00001"

        def train(self) -> dict[str, Any]:
            report({"loss": 0.5})
            return {"training_iteration": 1, "loss": 0.5, "done": False}

    class FunctionTrainable(Trainable):
        pass

    def report_of(metrics: dict[str, Any], *, checkpoint: Any = None) -> None:
        pass

    class CallbackList:
        def on_trial_result(self, **info: Any) -> None:
            report({"loss": info["result"]})

        def on_trial_complete(self, **info: Any) -> None:
            pass

    reporting = SimpleNamespace(report=report_of)
    ray.install(SimpleNamespace(Trainable=Trainable))
    ray.install(reporting)
    ray.install(SimpleNamespace(CallbackList=CallbackList))

    def report(metrics: dict[str, Any]) -> None:
        reporting.report(metrics)

    FunctionTrainable().train()
    CallbackList().on_trial_result(iteration=1, result=0.5)
    assert heard.rows == [({"loss": 0.5}, 1)]


@pytest.mark.parametrize("error", [None, ValueError("theirs")])
def test_how_a_worker_of_ray_train_ends(
    heard: Heard, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    ends: list[BaseException | None] = []
    monkeypatch.setattr(HUB, "training_ended", ends.append)

    class ThreadRunner:
        def run(self, target: Any) -> Any:
            assert target.__name__ == "train"
            return target()

    def train() -> str:
        if error is not None:
            raise error
        return "trained"

    ray.install(SimpleNamespace(ThreadRunner=ThreadRunner))
    if error is None:
        assert ThreadRunner().run(train) == "trained"
    else:
        with pytest.raises(ValueError, match="theirs"):
            ThreadRunner().run(train)
    assert ends == [error]
