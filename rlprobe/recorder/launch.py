"""Rank, world size and launch identity, as the launcher's environment tells them."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlprobe import environment

# (rank, world size) variables in the order in which they are believed: torchrun, accelerate,
# DeepSpeed and Ray set the first pair; SLURM's are set even where srun did not start the process,
# so they come after those of MPI.
_PAIRS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    ("PALS_RANKID", "PALS_SIZE"),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("PMIX_RANK", "PMIX_SIZE"),  # where nobody tells how many there are
)
# What names one launch, equal on all of its hosts: of PMIx (Open MPI 5, prterun, jsrun, srun with
# --mpi=pmix), of Open MPI up to 4, MPICH and Intel MPI (Hydra), MVAPICH, PALS, ALPS, Flux.
_MPI_JOBS = (
    "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid",
    "OMPI_MCA_orte_ess_jobid",
    "OMPI_MCA_ess_jobid",
    "PMI_JOBID",
    "PMI2_JOBID",
    "HYDRA_JOBID",
    "I_MPI_HYDRA_UUID",
    "MPIRUN_ID",
    "PALS_APID",
    "ALPS_APP_ID",
    "FLUX_JOB_ID",
)


TRAINER = "trainer"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process stands in its job.

    Attributes:
        launch: equal for all processes of one launch, where the environment allows to tell.
        role: actor group under Ray, where each group has a rank 0 of its own; else `trainer`.
    """

    rank: int
    world_size: int
    launch: str
    role: str


def place(environ: Mapping[str, str] | None = None) -> Place:
    """This process's place, from the environment; rank 0 of 1 where nothing is set."""
    env = os.environ if environ is None else environ
    rank, world_size = _rank(env)
    given = env.get(environment.ROLE) or env.get("WG_PREFIX", "")
    role = re.sub(r"[^A-Za-z0-9_]", "", given)[:24] or TRAINER
    return Place(rank, world_size, _launch(env, world_size), role)


def ends_by_signal(environ: Mapping[str, str] | None = None) -> bool:
    """Whether SIGTERM is how this process ends in order: Ray ends its workers so."""
    return "RAY_RAYLET_PID" in (os.environ if environ is None else environ)


def announce(run_dir: Path) -> None:
    """Tell `rlprobe record`, if it runs this process, that it records itself, and where.

    The launcher then records nothing of what the output tells: no row is written twice.
    """
    status = os.environ.get(environment.STATUS)
    if status:
        mark = Path(status) / f"attached-{os.getpid()}"
        with contextlib.suppress(OSError), mark.open("a", encoding="utf-8") as file:
            file.write(f"{run_dir}\n")


def _rank(env: Mapping[str, str]) -> tuple[int, int]:
    for rank_name, size_name in _PAIRS:
        rank, size = env.get(rank_name, ""), env.get(size_name, "")
        if rank.isdigit():
            return int(rank), max(int(size) if size.isdigit() else 1, int(rank) + 1)
    return 0, 1


def name_of(world_size: int, *, alone: str) -> str:
    """What names this launch, where somebody says how many processes it has.

    Args:
        alone: its name where it has only one.
    """
    known = _rank(os.environ)[1] > 1
    return alone if known or world_size == 1 else _launch(os.environ, world_size)


def _launch(env: Mapping[str, str], world_size: int) -> str:
    restart = env.get("TORCHELASTIC_RESTART_COUNT", env.get("SLURM_RESTART_COUNT", "0"))
    if environment.LAUNCH in env:
        return f"{env[environment.LAUNCH]}.{restart}"
    job = job_of(env, several=world_size > 1)
    if job:
        return f"{job}.{restart}"
    if world_size > 1:  # no name, but more than one: whoever comes again opens the next attempt
        return f"world.{world_size}.{restart}"
    return uuid.uuid4().hex


def job_of(env: Mapping[str, str], *, several: bool = False) -> str:
    """What all processes of a launch have in common and no other launch has; empty if unknown.

    What started the processes itself tells more than what it was started by: below `srun`, the
    processes of `torchrun` or `mpirun` on the first node lack what those on the others have.
    """
    several = several or _rank(env)[1] > 1
    rendezvous = [env.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT")]
    if "TORCHELASTIC_RUN_ID" in env and several:
        return ".".join([*rendezvous, env["TORCHELASTIC_RUN_ID"], env.get("SLURM_JOB_ID", "")])
    by_mpi = next((name for name in _MPI_JOBS if env.get(name)), None)
    if by_mpi:
        # A scheduler's id names the job, in which there may be several launches.
        return f"mpi.{env[by_mpi]}"
    if "SLURM_JOB_ID" in env:
        step = env.get("SLURM_STEP_ID", env.get("SLURM_STEPID", ""))
        return f"slurm.{env['SLURM_JOB_ID']}.{step}"
    return ".".join(rendezvous) if several and rendezvous[0] else ""
