"""Programs that start several processes of a script: which script, and how many."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rlprobe.commands import options
from rlprobe.commands.options import Options, one_each
from rlprobe.commands.starts import Surroundings

Started = tuple[list[str], Surroundings]  # words of what each process runs, and where

_TORCHRUN = one_each(
    *("--nnodes", "--nproc-per-node", "--nproc_per_node", "--rdzv-backend", "--rdzv_backend"),
    *("--rdzv-endpoint", "--rdzv_endpoint", "--rdzv-id", "--rdzv_id", "--rdzv-conf", "--rdzv_conf"),
    *("--max-restarts", "--max_restarts", "--monitor-interval", "--monitor_interval", "--role"),
    *("--start-method", "--start_method", "--log-dir", "--log_dir", "-r", "--redirects", "-t"),
    *("--tee", "--node-rank", "--node_rank", "--master-addr", "--master_addr", "--master-port"),
    *("--master_port", "--local-addr", "--local_addr", "--local-ranks-filter", "--numa-binding"),
)
_DEEPSPEED = one_each(
    *("-H", "--hostfile", "-i", "--include", "-e", "--exclude", "--num_nodes", "--num_gpus"),
    *(
        "--min_elastic_nodes",
        "--max_elastic_nodes",
        "--master_port",
        "--master_addr",
        "--node_rank",
    ),
    *("--launcher", "--launcher_args", "--autotuning", "--bind_core_list", "--ssh_port"),
)
_MPI = {
    **one_each(
        *("-n", "-np", "--np", "-c", "--n", "-N", "--npernode", "-npernode", "-ppn", "-perhost"),
        *("-H", "-host", "--host", "-hosts", "-f", "-machinefile", "--machinefile", "--hostfile"),
        *("-hostfile", "--map-by", "-map-by", "--bind-to", "-bind-to", "--rank-by", "-x", "-wdir"),
        *(
            "--wdir",
            "-wd",
            "--output-filename",
            "--output",
            "--prefix",
            "-iface",
            "--oversubscribe",
        ),
        *("-bootstrap", "-launcher", "--timeout", "-genvlist", "--pmixmca", "--prtemca_"),
    ),
    **dict.fromkeys(("--mca", "-mca", "--gmca", "-genv", "-env", "--prtemca"), 2),
}
_MPI["--oversubscribe"] = 0
_SRUN = one_each(
    *("-n", "--ntasks", "-N", "--nodes", "-c", "--cpus-per-task", "-p", "--partition", "-A"),
    *("--account", "-t", "--time", "-J", "--job-name", "-w", "--nodelist", "-x", "--exclude", "-D"),
    *("--chdir", "-G", "--gpus", "-o", "--output", "-e", "--error", "-q", "--qos", "-C", "-d"),
    *("--ntasks-per-node", "--mem", "--gres", "--mpi", "--export", "-i", "--input", "-m", "-B"),
)
_HOROVOD = one_each("-np", "--num-proc", "-H", "--hosts", "-p", "--ssh-port", "-hostfile")
# A config file of `accelerate config` that nobody names.
_ACCELERATE_CONFIG = ".cache/huggingface/accelerate/default_config.yaml"
_PROCESSES = re.compile(r"^num_processes:\s*(\d+)\s*$", re.MULTILINE)
_MOST_CONFIG = 100_000
# `python -m` of a module that is a launcher itself.
MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "torch.distributed.launcher": "torchrun",
    "accelerate.commands.launch": "accelerate-launch",
    "accelerate.commands.accelerate_cli": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed": "deepspeed",
}


def started(name: str, words: Sequence[str], around: Surroundings) -> list[Started] | None:
    """What each process of a launcher runs; None if the program is none.

    Args:
        name: the program's own name.
        words: its arguments.
    """
    read = _READERS.get(name)
    return None if read is None else read(words, around)


def _torchrun(words: Sequence[str], around: Surroundings) -> list[Started]:
    given, rest = options.leading(words, _TORCHRUN)
    nodes = _count(options.value_of(given, "--nnodes"), 1)
    each = _count(options.value_of(given, "--nproc-per-node", "--nproc_per_node"), 1)
    return [(_script(given, rest), _launched(around, "torchrun", _times(nodes, each)))]


def _accelerate(words: Sequence[str], around: Surroundings) -> list[Started]:
    if words[:1] != ["launch"]:
        return []
    return _accelerate_launch(words[1:], around)


def _accelerate_launch(words: Sequence[str], around: Surroundings) -> list[Started]:
    """Its options are many: what takes a value is told by what does not look like a script."""
    at = next((place for place, word in enumerate(words) if _is_script(words, place, word)), None)
    if at is None:
        return [([], _launched(around, "accelerate launch", None))]
    given, _ = options.leading(words[:at], _pairs(words[:at]))
    asked = options.value_of(given, "--num_processes", "--num-processes", "--num_process")
    number = _count(asked, None) if asked else _configured(given, around)
    module = bool({"-m", "--module"} & {name for name, _ in given})
    command = _script([("-m", "")] if module else [], words[at:])
    return [(command, _launched(around, "accelerate launch", number))]


def _is_script(words: Sequence[str], place: int, word: str) -> bool:
    if place and words[place - 1] in ("-m", "--module"):
        return True
    return word.endswith((".py", ".sh")) and not words[max(place - 1, 0)].endswith("_file")


def _pairs(words: Sequence[str]) -> dict[str, int]:
    """Options that a word without a dash follows."""
    following = itertools.pairwise(words)
    return {name: 1 for name, value in following if name[:1] == "-" and value[:1] != "-"}


def _configured(given: Options, around: Surroundings) -> int | None:
    """How many processes the config file of accelerate names; 1 where there is none."""
    named = options.value_of(given, "--config_file", "--config-file")
    home = Path(around.environ.get("HOME", "/"))
    path = around.directory / named if named else home / _ACCELERATE_CONFIG
    try:
        text = path.read_text(encoding="utf-8", errors="replace")[:_MOST_CONFIG]
    except OSError:
        return None if named or {"--multi_gpu"} & {name for name, _ in given} else 1
    match = _PROCESSES.search(text)
    return int(match[1]) if match else None


def _deepspeed(words: Sequence[str], around: Surroundings) -> list[Started]:
    given, rest = options.leading(words, _DEEPSPEED)
    included = options.value_of(given, "-i", "--include")
    number = _count(options.value_of(given, "--num_gpus"), None)
    if included and "@" not in included:
        number = sum(len(part.rpartition(":")[2].split(",")) for part in included.split("@"))
    nodes = _count(options.value_of(given, "--num_nodes"), 1)
    return [(_script(given, rest), _launched(around, "deepspeed", _times(nodes, number)))]


def _mpi(words: Sequence[str], around: Surroundings) -> list[Started]:
    """Each part between colons is a program of its own; all are ranks of one job."""
    parts: list[Started] = []
    total: int | None = 0
    remote = False
    for part in _parts(words):
        given, rest = options.leading(part, _MPI)
        asked = options.value_of(given, "-n", "-np", "--np", "--n", "-c")
        number = _count(asked, None) if asked else None
        total = None if number is None or total is None else total + number
        remote |= bool({"-H", "-host", "--host", "--hostfile", "-f"} & {name for name, _ in given})
        parts.append((rest, around))
    told = ("on other hosts the hook needs `-x PYTHONPATH -x RLPROBE_RUN`",) if remote else ()
    there = _launched(around, "mpirun", total)
    there = replace(there, remarks=(*there.remarks, *told))
    return [(rest, there) for rest, _ in parts if rest]


def _parts(words: Sequence[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _srun(words: Sequence[str], around: Surroundings) -> list[Started]:
    given, rest = options.leading(words, _SRUN)
    asked = options.value_of(given, "-n", "--ntasks")
    nodes = _count(options.value_of(given, "-N", "--nodes"), 1)
    each = options.value_of(given, "--ntasks-per-node")
    number = _count(asked, None) if asked else _times(nodes, _count(each, 1))
    there = _launched(around, "srun", number)
    exported = options.value_of(given, "--export") or "ALL"
    if "ALL" not in exported.split(","):
        changes = (*there.changes, f"`srun --export={exported}` does not pass it on")
        environ = {k: v for k, v in there.environ.items() if k != "PYTHONPATH"}
        there = replace(there, environ=environ, changes=changes)
    return [(rest, there)]


def _horovod(words: Sequence[str], around: Surroundings) -> list[Started]:
    given, rest = options.leading(words, _HOROVOD)
    number = _count(options.value_of(given, "-np", "--num-proc"), None)
    return [(rest, _launched(around, "horovodrun", number))]


def _script(given: Options, rest: Sequence[str]) -> list[str]:
    """What a launcher of Python scripts runs, as the Python it starts."""
    names = {name for name, _ in given}
    if names & {"--no-python", "--no_python"}:
        return list(rest)
    if names & {"-m", "--module"}:
        return ["python", "-m", *rest]
    return ["python", *rest] if rest else []


def _launched(around: Surroundings, launcher: str, number: int | None) -> Surroundings:
    total = _times(around.ranks, number)
    named = f"{around.launcher}, {launcher}" if around.launcher else launcher
    return replace(around, launcher=named, ranks=total)


def _count(text: str | None, default: int | None) -> int | None:
    """A number in words; None for what only the machine knows: `gpu`, `auto`, `1:4`, `$N`."""
    if text is None:
        return default
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else None


def _times(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one * other


_READERS: Mapping[str, Callable[[Sequence[str], Surroundings], list[Started]]] = {
    "torchrun": _torchrun,
    "accelerate": _accelerate,
    "accelerate-launch": _accelerate_launch,
    "deepspeed": _deepspeed,
    **dict.fromkeys(("mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra", "jsrun"), _mpi),
    "srun": _srun,
    "horovodrun": _horovod,
}
