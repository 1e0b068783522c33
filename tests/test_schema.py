"""The data in schemas/: whole, consistent, and meaning what it says."""

from __future__ import annotations

import pytest

from rlprobe import schema


def test_tables_have_arrow_types_for_every_column() -> None:
    for name, table in schema.tables().items():
        fields = schema.arrow_fields(name)
        assert [field.name for field in fields] == [column.name for column in table.columns]
        required = {column.name for column in table.columns if column.required}
        assert {field.name for field in fields if not field.nullable} == required


def test_every_alias_points_into_the_vocabulary() -> None:
    for framework, aliases in schema.aliases().items():
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
    assert schema.aliases()["trl"].canonical(key) == name


def test_the_framework_is_told_by_its_keys() -> None:
    assert schema.detect_framework(["loss", "train/frac_reward_zero_std"]) == "trl"
    assert schema.detect_framework(["loss", "accuracy"]) is None


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
