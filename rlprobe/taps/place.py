"""Rank and role of this process, and whether it is a helper of one that records.

What is told to the launcher goes into its status folder, as files `<what>-<pid>`.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, List, NamedTuple, Optional

from . import variables

_MOST_PARENTS = 64
_COMMAND = 200  # characters
TRAINER = "trainer"
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SUFFIXES = frozenset({"actor", "worker", "manager", "group", "impl", "process", "task"})
# Words of the names of Ray actors, the first that fits tells: verl's `ActorRolloutRefWorker`
# trains, OpenRLHF's `LLMRayActor` and SkyRL's `AsyncVLLMInferenceEngine` generate.
_ROLES = (
    ("trainer", ("train", "actor", "policy", "learner", "critic", "driver", "runner")),
    ("reward", ("reward", "verif", "judge", "grader", "scorer")),
    ("rollout", ("rollout", "vllm", "sglang", "llm", "inference", "generat", "engine", "sampler")),
    ("environment", ("env", "simulator", "gym", "agent")),
)


class Distributed(NamedTuple):
    """Where a process stands in torch's default process group."""

    rank: int
    world_size: int


def distributed() -> Optional[Distributed]:
    """This process's place in torch's process group; None where there is none (yet)."""
    module: Any = sys.modules.get("torch.distributed")
    try:
        if module is not None and module.is_available() and module.is_initialized():
            return Distributed(int(module.get_rank()), int(module.get_world_size()))
    except Exception:
        return None
    return None


def role() -> str:
    """What this process does for the training: `trainer`, `rollout`, `reward`, `environment`, ….

    The environment variable RLPROBE_ROLE tells, else the name of the Ray actor that it is.
    """
    given = re.sub(r"[^a-z0-9_]", "", os.environ.get(variables.ROLE, "").lower())[:24]
    return given or role_of(ray_actor())


def role_of(actor: str) -> str:
    """What an actor of this class does, by its name."""
    words = _stem(_HUMP.sub("_", actor).lower())
    for name, starts in _ROLES:
        if any(word.startswith(starts) for word in words):
            return name
    return TRAINER


def _stem(words: str) -> List[str]:
    """The words of a name without those at its end that every actor has."""
    split = [word for word in words.split("_") if word]
    while len(split) > 1 and split[-1] in _SUFFIXES:
        split.pop()
    return split


def ray_actor() -> str:
    """The class of the Ray actor that this process is; empty if it is none."""
    if "ray" not in sys.modules:
        return ""
    shown = command()
    return shown[5:].partition(".")[0] if shown.startswith("ray::") else ""


def command() -> str:
    """What the system shows as the command of this process."""
    try:
        with open("/proc/self/cmdline", "rb") as file:
            words = file.read(4096).split(b"\0")
        return b" ".join(words).decode("utf-8", "replace").strip()[:_COMMAND]
    except OSError:
        return " ".join(sys.argv)[:_COMMAND]


def has_recorder() -> bool:
    """Whether this is part of rlprobe, and not loaded by its path, and the recorder can run."""
    from importlib.util import find_spec

    if __name__ != "rlprobe.taps.place":
        return False
    return all(find_spec(name) is not None for name in ("numpy", "pyarrow"))


def recording_parent() -> int:
    """The process above this one that records; 0 if there is none, or this one has a rank.

    What such a process starts and what is no rank of its own helps it: an evaluation, a tokenizer.
    Not so the tasks and actors of a Ray that it started: they have roles.
    """
    status = os.environ.get(variables.STATUS)
    if not status or distributed() is not None or ray_actor():
        return 0
    number = os.getppid()
    for _ in range(_MOST_PARENTS):
        if number <= 1:
            return 0
        if os.path.exists(os.path.join(status, "attached-%d" % number)):
            return number
        number = _parent_of(number)
    return 0


def _parent_of(number: int) -> int:
    try:
        with open("/proc/%d/stat" % number, "rb") as file:
            return int(file.read(4096).rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def tell(what: str, text: str) -> None:
    """Leave a line for the launcher, if there is one on this machine."""
    status = os.environ.get(variables.STATUS)
    if not status:
        return
    path = os.path.join(status, "%s-%d" % (what, os.getpid()))
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text.replace("\n", " ") + "\n")
    except OSError:
        pass
