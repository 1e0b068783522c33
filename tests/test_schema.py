"""The data in schemas/: whole, consistent, and meaning what it says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlprobe import naming, schema


def test_tables_have_arrow_types_for_every_column() -> None:
    for name, table in schema.tables().items():
        fields = schema.arrow_fields(name)
        assert [field.name for field in fields] == [column.name for column in table.columns]
        required = {column.name for column in table.columns if column.required}
        assert {field.name for field in fields if not field.nullable} == required


def test_every_alias_points_into_the_vocabulary() -> None:
    for framework, aliases in naming.every().items():
        for key, name in aliases.exact.items():
            assert schema.metric(name), f"{framework}: {key} -> {name} is not in the vocabulary"
        for _, target in aliases.patterns:
            assert schema.metric(target.replace("{name}", "x")), f"{framework}: {target}"


def test_families() -> None:
    found = schema.metric("reward_component/accuracy")
    assert found is not None
    assert found.name == "reward_component/*"
    assert schema.metric("nonsense/accuracy") is None
    assert schema.metric("rewards") is None


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("completions/clipped_ratio", "truncation_rate"),
        ("train/completions/clipped_ratio", "truncation_rate"),
        ("kl", "kl_mean"),
        ("rewards/format/mean", "reward_component/format"),
        ("rewards/format/std", "reward_component_std/format"),
        ("rewards/format", "reward_component/format"),
        ("rewards/chosen", None),
        ("eval_rewards/format/mean", "eval/reward_component/format"),
        ("eval_something", "eval/something"),
        ("grad_norm", "grad_norm"),
        ("my_metric", None),
    ],
)
def test_trl_keys(key: str, name: str | None) -> None:
    assert naming.every()["trl"].canonical(key) == name


def test_the_framework_is_told_by_its_keys() -> None:
    assert naming.detect_framework(["loss", "train/frac_reward_zero_std"]) == "trl"
    assert naming.detect_framework(["loss", "accuracy"]) is None


def test_of_two_keys_of_one_metric_the_better_counts_where_it_was_logged() -> None:
    trl = naming.every()["trl"]
    both = np.array([True, True])
    columns = {
        "clip_ratio/region_mean": (np.array([0.2, 0.4]), np.array([True, False])),
        "clip_ratio": (np.array([0.1, 0.3]), both),
        "my_metric": (np.array([1.0, math.nan]), both),
    }
    named = trl.apply(columns)
    assert sorted(named) == ["clip_fraction", "my_metric"]
    values, logged = named["clip_fraction"]
    assert (values.tolist(), logged.tolist()) == ([0.2, 0.3], [True, True])
    assert columns["clip_ratio"][0].tolist() == [0.1, 0.3]


@pytest.mark.parametrize(
    ("key", "logged", "name", "value"),
    [
        ("elapsed time per iteration (ms)", 1234.0, "step_time", 1.234),
        ("grad norm", 0.0, "grad_norm", None),
        ("grad norm", 0.5, "grad_norm", 0.5),
        ("grad norm", math.inf, "grad_norm", math.inf),
        ("unknown thing", 3.0, "unknown thing", 3.0),
    ],
)
def test_a_number_is_read_as_an_array_is(
    key: str, logged: float, name: str, value: float | None
) -> None:
    aliases = naming.every()["megatron"]
    ((one, (number, there)),) = aliases.apply({key: (logged, True)}).items()
    ((many, (values, valid)),) = aliases.apply(
        {key: (np.array([logged]), np.array([True]))}
    ).items()
    assert one == many == name
    assert bool(there) == bool(valid[0]) == (value is not None)
    if value is not None:
        assert number == values[0] == value


def test_plans_are_kept_and_bounded() -> None:
    aliases = naming.every()["generic"]
    assert aliases.plan(("loss", "kl")) is aliases.plan(("loss", "kl"))
    for number in range(1500):
        aliases.plan((f"key {number}",))
    assert len(aliases._plans) <= 1000


def test_steps_are_counters_and_measure_nothing() -> None:
    keys = schema.step_keys()
    assert keys.counters > set(keys.keys)
    assert set(keys.axes) <= set(keys.keys)
    assert len(set(keys.keys)) == len(keys.keys)
    assert all(keys.formats.values())


@pytest.mark.parametrize(
    ("keys", "algorithm"),
    [
        (["train/frac_reward_zero_std", "mean_token_accuracy"], "GRPO"),
        (["rewards/chosen", "rewards/rejected"], "DPO"),
        (["rewards/chosen"], None),
        (["critic_loss"], "PPO"),
        (["mean_token_accuracy"], "SFT"),
        ([], None),
    ],
)
def test_the_algorithm_is_told_by_its_keys(keys: list[str], algorithm: str | None) -> None:
    assert schema.detect_algorithm(keys) == algorithm


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (["RuntimeError: probability tensor contains either `inf`, `nan`"], "nan_probabilities"),
        (["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"], "cuda_out_of_memory"),
        (["Watchdog caught collective operation timeout: WorkNCCL(...)"], "collective_timeout"),
        (["OSError: [Errno 28] No space left on device"], "disk_full"),
        (["KeyError: 'reward'"], "exception"),
        (["ValueError: x", "CUDA error: device-side assert triggered"], "device_assert"),
        (["AssertionError: shapes"], "assertion"),
    ],
)
def test_last_lines_are_understood(lines: list[str], kind: str) -> None:
    found = schema.classify_failure(lines)
    assert found is not None
    assert found[0].kind == kind


def test_ordinary_lines_mean_nothing() -> None:
    assert schema.classify_failure(["step 3 loss 0.5", "done"]) is None
