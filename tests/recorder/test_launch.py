"""Rank and world size, as launchers tell them."""

from __future__ import annotations

import pytest

from rlprobe.recorder.launch import place


@pytest.mark.parametrize(
    ("env", "rank", "world_size"),
    [
        ({}, 0, 1),
        ({"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "0"}, 3, 8),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 1, 2),
        ({"PMI_RANK": "1", "PMI_SIZE": "4"}, 1, 4),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "16"}, 5, 16),
        ({"JSM_NAMESPACE_RANK": "2", "JSM_NAMESPACE_SIZE": "6"}, 2, 6),
        ({"RANK": "two", "WORLD_SIZE": "8"}, 0, 1),
        ({"RANK": "4"}, 4, 5),
    ],
)
def test_rank(env: dict[str, str], rank: int, world_size: int) -> None:
    found = place(env)
    assert (found.rank, found.world_size) == (rank, world_size)


def test_processes_of_one_launch_agree_and_launches_differ() -> None:
    torchrun = {"MASTER_ADDR": "h", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "x"}
    first = place({**torchrun, "RANK": "0", "WORLD_SIZE": "2"})
    second = place({**torchrun, "RANK": "1", "WORLD_SIZE": "2"})
    restarted = place(
        {**torchrun, "RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "1"}
    )
    assert first.launch == second.launch != restarted.launch
    assert place({}).launch != place({}).launch


def test_actor_groups_under_ray_have_roles() -> None:
    assert place({"WG_PREFIX": "actor/rollout!", "RANK": "0"}).role == "actorrollout"
    assert place({}).role == "trainer"
