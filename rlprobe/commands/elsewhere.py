"""Programs that run a command where nothing of ours reaches it."""

from __future__ import annotations

from collections.abc import Sequence

_IN = "record inside of it instead: `{name} … rlprobe record COMMAND`"
_OUTPUT = "{name} runs the command {place}: what it prints is read, where it comes back here"
_SILENT = "{name} returns at once and shows nothing of the command"
# Program -> where its command runs. `ray` and `kubectl` by their subcommands.
_SHOWN = {
    "ssh": "on another host",
    "docker": "in a container",
    "podman": "in a container",
    "nerdctl": "in a container",
    "apptainer": "in a container",
    "singularity": "in a container",
    "enroot": "in a container",
    "kubectl": "in a pod",
    "modal": "in its cloud",
    "sky": "on a cluster",
    "gcloud": "in its cloud",
    "ray": "in a job of the cluster, with an environment of its own",
}
_UNSHOWN = ("sbatch", "qsub", "bsub", "condor_submit", "at", "batch", "tmux", "screen")
# What of these programs runs no command of anybody's, or not elsewhere.
_RAY = ("submit", "job", "exec")


def apart(name: str, words: Sequence[str]) -> tuple[str, str] | None:
    """Why a program's command is out of reach, and what to do; None if it is not.

    Args:
        name: the program's own name.
        words: its arguments.
    """
    if name == "ray" and words[:1] and words[0] not in _RAY:
        return None
    if name in _UNSHOWN:
        return _SILENT.format(name=name), _IN.format(name=name)
    if name in _SHOWN:
        return _OUTPUT.format(name=name, place=_SHOWN[name]), _IN.format(name=name)
    return None


def shows_nothing(name: str) -> bool:
    """Whether not even the output of its command comes back."""
    return name in _UNSHOWN
