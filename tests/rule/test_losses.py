"""Which kind a loss is, and what tells."""

from __future__ import annotations

from typing import Any

import pytest

from rlprobe.rule import LossKind, training_loss
from rlprobe.scan.context import Context
from rlprobe.store.run import RunInfo
from rlprobe.store.table import TableRun
from rlprobe.testing import run_of

FALLING = [2.7, 2.0, 1.1, 0.6, 0.4]
AROUND_0 = [0.01, -0.02, 0.0, 0.03, -0.01]


def kind_of(settings: dict[str, Any] | None = None, /, **columns: list[float]) -> LossKind:
    case = {"name": "run", "columns": columns, "settings": settings or {}}
    loss = training_loss(Context(run_of(case)))
    assert loss is not None
    return LossKind.of(loss)


def beside(values: float) -> list[float]:
    return [values] * 5


def test_an_entropy_does_not_make_a_policy_gradient() -> None:
    kind = kind_of(loss=FALLING, entropy=beside(2.0), token_accuracy=beside(0.4))
    assert (kind.name, kind.signed, kind.tokens) == ("likelihood", False, True)
    assert kind.why == "token_accuracy is logged"
    assert kind_of(loss=FALLING, entropy=beside(2.0)).name == "likelihood"


@pytest.mark.parametrize(
    "metric", ["reward_mean", "advantage_std", "clip_fraction", "kl_mean", "value_loss"]
)
def test_what_a_policy_gradient_is_logged_with(metric: str) -> None:
    kind = kind_of(loss=FALLING, **{metric: beside(0.5)})
    assert (kind.name, kind.signed, kind.tokens) == ("policy gradient", True, False)
    assert metric in kind.why


def test_a_loss_of_pairs_is_known_by_its_accuracy_even_beside_a_kl() -> None:
    kind = kind_of(loss=FALLING, preference_margin=beside(1.0), kl_mean=beside(0.1))
    assert (kind.name, kind.signed, kind.tokens) == ("preference", False, False)


def test_a_loss_that_goes_below_0_has_no_ratio() -> None:
    assert kind_of(loss=AROUND_0).why == "it goes below 0"
    assert kind_of(loss=AROUND_0, preference_margin=beside(1.0)).signed
    assert kind_of(loss=AROUND_0, token_accuracy=beside(0.4)).name == "policy gradient"


def test_a_loss_that_begins_at_0_is_of_no_known_kind() -> None:
    kind = kind_of(loss=[0.0, 0.0, 0.001, 0.002, 0.01])
    assert (kind.name, kind.signed) == ("unknown", False)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"num_generations": 8}, "policy gradient"),
        ({"packing": True}, "likelihood"),
        ({"loss_type": "sigmoid"}, "preference"),
        ({"loss_type": "dr_grpo"}, "policy gradient"),
        ({"loss_type": "of my own"}, "likelihood"),
    ],
)
def test_settings_tell_where_nothing_else_is_logged(settings: dict[str, Any], name: str) -> None:
    assert kind_of(settings, loss=FALLING).name == name


def test_the_algorithm_is_believed_first() -> None:
    run = run_of({"name": "run", "columns": {"loss": FALLING, "reward_mean": beside(0.5)}})
    info = RunInfo(path="run", id="run", source="recording", algorithm="SFT")
    loss = training_loss(Context(TableRun(info, run.steps)))
    assert loss is not None
    kind = LossKind.of(loss)
    assert (kind.name, kind.why) == ("likelihood", "the algorithm is SFT")


def test_the_policy_loss_stands_in_where_no_loss_is_logged() -> None:
    both = Context(run_of({"name": "", "columns": {"loss": FALLING, "policy_loss": AROUND_0}}))
    one = Context(run_of({"name": "", "columns": {"policy_loss": AROUND_0}}))
    none = Context(run_of({"name": "", "columns": {"entropy": AROUND_0}}))
    told = [loss and loss.metric for loss in map(training_loss, (both, one, none))]
    assert told == ["loss", "policy_loss", None]


def test_the_evidence_says_as_what_a_loss_is_judged() -> None:
    loss = training_loss(Context(run_of({"name": "", "columns": {"loss": FALLING}})))
    assert loss is not None
    evidence = LossKind.of(loss).evidence(loss)
    assert evidence.value == 0.4
    assert "judged as a likelihood loss: it has the size of a cross entropy" in evidence.note
