"""When finding nothing is no good news: too much not understood, or nothing that tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlprobe import schema
from rlprobe.config import GatePolicy
from rlprobe.findings import ScanReport
from rlprobe.gate import judge
from rlprobe.scan.engine import scan
from rlprobe.store.frame import frame_of
from rlprobe.store.run import RunInfo
from rlprobe.store.table import TableRun
from rlprobe.values import Rollout, Unread, together

RNG = np.random.default_rng(3)
STEADY = np.exp(RNG.normal(0, 0.1, 200))
RISING = np.concatenate([0.02 * STEADY[:120], 3.0 * STEADY[:80]])
BLIND = "no loss, reward or gradient norm under a name that the checks know"


def run_of(*unread: Unread, **columns: np.ndarray) -> TableRun:
    data = {
        name.replace("__", "/"): (values, np.ones(len(values), dtype=np.bool_))
        for name, values in columns.items()
    }
    info = RunInfo(path="here", id="x", source="test", unread=unread)
    return TableRun(info, frame_of(np.arange(1, 201), data))


def said(report: ScanReport) -> tuple[str, str]:
    return report.verdict, report.reason


@pytest.mark.parametrize(
    ("count", "of", "verdict"),
    [(0, 47, "pass"), (20, 100, "pass"), (21, 100, "not_judged"), (430, 477, "not_judged")],
)
def test_above_a_fifth_not_understood_nothing_is_healthy(count: int, of: int, verdict: str) -> None:
    report = scan(run_of(Unread("line", count, of), loss=STEADY))
    assert report.verdict == verdict
    why = f"{count} of {of} lines that look like metrics were not understood"
    assert report.reason == (why if verdict == "not_judged" else "")
    assert report.run.unread == (Unread("line", count, of),)


def test_one_kind_of_pieces_is_enough() -> None:
    report = scan(run_of(Unread("line", 0, 900), Unread("column", 1, 3), loss=STEADY))
    why = "1 of 3 columns that look like metrics was not understood"
    assert said(report) == ("not_judged", why)


def test_what_was_found_stands() -> None:
    report = scan(run_of(Unread("line", 430, 477), loss=STEADY, kl_mean=RISING))
    assert report.verdict in {"warn", "fail"}
    assert "430 of 477" in report.reason


def test_one_value_in_many_rows_tells_nothing() -> None:
    run = run_of(kl_mean=0.02 * STEADY)
    told = np.arange(200) == 199
    loss = {"loss": (np.where(told, 0.5, np.nan), told)}
    data = {"kl_mean": run.steps.load("kl_mean"), **loss}
    report = scan(TableRun(run.info, frame_of(np.arange(1, 201), data)))
    why = "one value of loss in all, and no other loss, reward or gradient norm"
    assert said(report) == ("not_judged", why)


@pytest.mark.parametrize(
    "name",
    [
        "loss",
        "policy_loss",
        "grad_norm",
        "reward_mean",
        "reward_component__format",
        "eval__loss",
        "eval__reward_mean",
        "preference_margin",
    ],
)
def test_a_loss_a_reward_or_a_gradient_tells_how_a_run_does(name: str) -> None:
    report = scan(run_of(kl_mean=0.02 * STEADY, **{name: STEADY}))
    assert said(report) == ("pass", "")


@pytest.mark.parametrize("name", ["lr", "tokens_per_second", "eval__ppl", "my_own_loss"])
def test_what_tells_nothing_of_that_cannot_be_healthy(name: str) -> None:
    report = scan(run_of(kl_mean=0.02 * STEADY, **{name: STEADY}))
    assert said(report) == ("not_judged", BLIND)
    assert judge([report], GatePolicy()).exit_code == 3


def test_rewards_of_rollouts_count() -> None:
    run = run_of(kl_mean=0.02 * STEADY)
    rollouts = [Rollout(7, "g", f"s{n}", reward=n / 4, completion="x") for n in range(4)]
    assert scan(TableRun(run.info, run.steps, rollouts=rollouts)).reason == ""
    bare = [replace(rollout, reward=None) for rollout in rollouts]
    assert scan(TableRun(run.info, run.steps, rollouts=bare)).reason == BLIND


def test_values_of_ranks_count() -> None:
    run = run_of(kl_mean=0.02 * STEADY)
    steps = np.repeat(np.arange(1, 201), 2)
    norms = (np.repeat(STEADY, 2), np.ones(400, dtype=np.bool_))
    ranks = frame_of(steps, {"grad_norm": norms}, rank=np.tile(np.arange(2), 200))
    assert scan(TableRun(run.info, run.steps, ranks=ranks)).verdict == "pass"


def test_a_warning_on_a_log_that_was_not_understood_opens_no_gate() -> None:
    report = scan(run_of(Unread("line", 90, 100), loss=STEADY, kl_mean=RISING))
    verdict = judge([report], GatePolicy(fail_on=None))
    assert (verdict.exit_code, verdict.verdict) == (3, "not_judged")
    why = "90 of 100 lines that look like metrics were not understood"
    assert verdict.reasons == (f"'here' was not judged as a whole: {why}",)


def test_metrics_of_the_three_kinds_are_marked() -> None:
    kinds = {name: item.kind for name, item in schema.metrics().items() if item.kind}
    assert set(kinds.values()) == {"loss", "reward", "gradient"}
    assert kinds["reward_component/*"] == "reward"
    assert "entropy" not in kinds
    assert "lr" not in kinds


def test_parts_add_up_by_thing() -> None:
    lines = Unread("line", 2, 10, ((3, "a"), (4, "b")))
    more = Unread("line", 5, 7, ((1, "c"), (2, "d")))
    cells = Unread("cell", 0, 4)
    assert together([lines, cells, more]) == (
        Unread("line", 7, 17, ((3, "a"), (4, "b"), (1, "c"))),
        cells,
    )
    assert together([]) == ()
