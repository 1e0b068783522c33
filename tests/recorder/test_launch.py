"""Rank and world size, as launchers tell them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlprobe.recorder.launch import place
from rlprobe.store import manifest


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


# Environments as launchers set them: those of two ranks of one launch, and of a rank of the next.
Env = dict[str, str]
MPI_4 = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_UNIVERSE_SIZE": "4", "OMPI_MCA_ess_base_vpid": "0"}
SLURM = {"SLURM_JOB_ID": "811", "SLURM_NTASKS": "4", "SLURM_NNODES": "2"}


def openmpi_4(rank: int, job: str) -> Env:
    own = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_MCA_ess_base_jobid": job}
    return {**MPI_4, **own, "PMIX_NAMESPACE": job, "PMIX_RANK": str(rank)}


def openmpi_5(rank: int, job: str) -> Env:
    space = f"prterun-node1-{job}@1"
    return {
        **MPI_4,
        "OMPI_COMM_WORLD_RANK": str(rank),
        "PMIX_NAMESPACE": space,
        "PMIX_RANK": str(rank),
        "PMIX_SERVER_URI41": f"prterun-node{rank // 2}-{job}@0.0;tcp4://10.0.0.{rank}:4711",
    }


def openmpi_1(rank: int, job: str) -> Env:
    return {**MPI_4, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_MCA_orte_ess_jobid": job}


def mpirun_in_sbatch(rank: int, job: str) -> Env:
    """The first node's ranks are children of mpirun itself, the others' of an srun step."""
    step = {} if rank < 2 else {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1"}
    return {**SLURM, "SLURM_PROCID": "0", **step, **openmpi_4(rank, job)}


def intel_mpi(rank: int, job: str) -> Env:
    own = {"PMI_RANK": str(rank), "PMI_SIZE": "4", "PMI_FD": str(9 + rank), "PMI_ID": str(rank)}
    return {**own, "I_MPI_HYDRA_UUID": job, "MPI_LOCALRANKID": str(rank % 2)}


def mpich_under_slurm(rank: int, job: str) -> Env:
    own = {"PMI_RANK": str(rank), "PMI_SIZE": "4", "PMI_JOBID": f"811.{job}"}
    return {**SLURM, "SLURM_STEP_ID": job, "SLURM_PROCID": str(rank), **own}


def mvapich(rank: int, job: str) -> Env:
    own = {"MV2_COMM_WORLD_RANK": str(rank), "MV2_COMM_WORLD_SIZE": "4"}
    return {**own, "MPIRUN_ID": job, "MV2_COMM_WORLD_LOCAL_RANK": str(rank % 2)}


def jsrun(rank: int, job: str) -> Env:
    own = {"JSM_NAMESPACE_RANK": str(rank), "JSM_NAMESPACE_SIZE": "4", "PMIX_NAMESPACE": job}
    return {**own, "LSB_JOBID": "77"}


def pals(rank: int, job: str) -> Env:
    return {"PALS_RANKID": str(rank), "PALS_SIZE": "4", "PALS_APID": job, "PBS_JOBID": "5.pbs"}


def flux(rank: int, job: str) -> Env:
    return {"FLUX_TASK_RANK": str(rank), "FLUX_JOB_SIZE": "4", "FLUX_JOB_ID": job}


def srun(rank: int, job: str) -> Env:
    own = {"SLURM_PROCID": str(rank), "SLURM_NODEID": str(rank // 2), "SLURM_STEP_ID": job}
    return {**SLURM, **own, "SLURM_LOCALID": str(rank % 2), "SLURM_TASK_PID": str(1000 + rank)}


def old_srun(rank: int, job: str) -> Env:
    own = {"SLURM_PROCID": str(rank), "SLURM_STEPID": job}
    return {**SLURM, **own}


def srun_pmix(rank: int, job: str) -> Env:
    return {**srun(rank, job), "PMIX_NAMESPACE": f"slurm.pmix.811.{job}", "PMIX_RANK": str(rank)}


def requeued(rank: int, job: str) -> Env:
    return {**srun(rank, "0"), "SLURM_RESTART_COUNT": job}


def torchrun(rank: int, job: str) -> Env:
    own = {"RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": str(rank % 2)}
    return {
        **own,
        "MASTER_ADDR": "node1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": job,
        "TORCHELASTIC_RESTART_COUNT": "0",
    }


def torchrun_in_sbatch(rank: int, job: str) -> Env:
    """The first node's torchrun is not started by srun, the second's is."""
    step = {} if rank < 2 else {"SLURM_STEP_ID": "0"}
    return {**SLURM, **step, "SLURM_PROCID": str(rank // 2), **torchrun(rank, job)}


def restarted_by_torchrun(rank: int, job: str) -> Env:
    return {**torchrun(rank, "run"), "TORCHELASTIC_RESTART_COUNT": job}


def deepspeed(rank: int, job: str) -> Env:
    own = {"RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": str(rank % 2)}
    return {**own, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": job, "CROSS_RANK": "0"}


def recorded(rank: int, job: str) -> Env:
    return {**openmpi_4(rank, "1"), "RLPROBE_LAUNCH": job}


LAUNCHERS = [
    openmpi_1,
    openmpi_4,
    openmpi_5,
    mpirun_in_sbatch,
    intel_mpi,
    mpich_under_slurm,
    mvapich,
    jsrun,
    pals,
    flux,
    srun,
    old_srun,
    srun_pmix,
    requeued,
    torchrun,
    torchrun_in_sbatch,
    restarted_by_torchrun,
    deepspeed,
    recorded,
]


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda launcher: launcher.__name__)
def test_the_ranks_of_a_launch_agree_and_the_next_launch_differs(
    launcher: Callable[[int, str], Env],
) -> None:
    places = [place(launcher(rank, "17")) for rank in range(4)]
    assert [(found.rank, found.world_size) for found in places] == [(r, 4) for r in range(4)]
    assert len({found.launch for found in places}) == 1
    assert place(launcher(0, "18")).launch != places[0].launch


def test_ranks_that_nothing_names_open_one_attempt_and_a_second_launch_another(
    tmp_path: Path,
) -> None:
    """`mpirun` may tell rank and size alone: whoever finds its rank taken is of the next launch."""

    def attempt(rank: int) -> int:
        found = place({"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "3"})
        return manifest.claim_attempt(
            tmp_path, found.launch, found.rank, f"w{len(list(tmp_path.rglob('*')))}", 3
        )

    manifest.prepare(tmp_path)
    assert [attempt(rank) for rank in (1, 0, 2)] == [1, 1, 1]
    assert [attempt(rank) for rank in (2, 0, 1)] == [2, 2, 2]


def test_processes_alone_are_launches_of_their_own() -> None:
    assert place({}).launch != place({}).launch
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    assert place(alone).launch != place(alone).launch
