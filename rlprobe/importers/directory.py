"""A directory -> the logs in it, grouped by the run that they are about."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

MOST_FILES = 100_000
_DEEPEST = 12
_NO_LOGS = frozenset(
    {".py", ".pyc", ".md", ".rst", ".pt", ".pth", ".bin", ".safetensors", ".ckpt", ".png", ".jpg"}
    | {".jpeg", ".gif", ".svg", ".pdf", ".zip", ".tar", ".tgz", ".whl", ".so", ".toml", ".yaml"}
    | {".yml", ".cfg", ".ini", ".sh", ".ipynb", ".model", ".lock", ".npy", ".npz", ".pkl", ".h5"}
    | {".css", ".js", ".mp4", ".html"}
)
_NO_LOG_NAMES = frozenset(
    {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
    | {"vocab.json", "special_tokens_map.json", "added_tokens.json", "adapter_config.json"}
    | {"model.safetensors.index.json", "preprocessor_config.json", "chat_template.json"}
    | {"args.json", "wandb-metadata.json", "requirements.txt", "merges.txt", "LICENSE", "README"}
    | {"debug.log", "debug-internal.log", "debug-core.log"}  # of wandb itself
)
# Parts of a name that tell files of one run apart: its ranks, its launches, its processes.
_MEMBER = re.compile(
    r"[._-]?\b(?:rank|attempt|node|worker|part|proc|restart|pre_resume|shard|host)[._-]?\d+\b"
    r"|(?<=[._-])r\d{3,5}\b",
    re.IGNORECASE,
)
_MEMBER_FOLDERS = frozenset({"trainer", "orchestrator"})
_RANK = re.compile(r"(?:^|[._/-])rank[._-]?(\d+)(?=$|[._/-])", re.IGNORECASE)


def files_in(directory: Path) -> Iterator[Path]:
    """Regular files that may be logs, in order of their names, at most MOST_FILES looked at.

    Links to directories are not followed, so that a loop cannot trap the walk; what may not be read
    is passed over.
    """
    seen = 0
    waiting = [(directory, 0)]
    while waiting:
        place, depth = waiting.pop()
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError:
            continue
        below: list[tuple[Path, int]] = []
        for entry in entries:
            seen += 1
            if seen > MOST_FILES:
                return
            if entry.name.startswith("."):
                continue
            if _is_directory(entry):
                below.append((Path(entry.path), depth + 1))
            elif _may_be_log(entry):
                yield Path(entry.path)
        if depth < _DEEPEST:
            waiting += reversed(below)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _may_be_log(entry: os.DirEntry[str]) -> bool:
    if entry.name in _NO_LOG_NAMES or Path(entry.name).suffix.lower() in _NO_LOGS:
        return False
    try:
        return entry.is_file() and entry.stat().st_size > 0
    except OSError:
        return False


def run_of(path: Path, root: Path) -> str:
    """What names the run of a file: its place, without what tells ranks and launches apart."""
    parts = path.relative_to(root).parts
    folders = [part for part in parts[:-1] if part not in _MEMBER_FOLDERS]
    names = [_MEMBER.sub("", part) for part in folders]
    return "/".join([*(name for name in names if name), _MEMBER.sub("", parts[-1])])


def rank_of(path: Path, root: Path) -> int | None:
    """The rank that a file's name or folder tells."""
    match = _RANK.search(str(path.relative_to(root)))
    return int(match[1]) if match else None


def checkpoint_of(path: Path) -> int | None:
    """The step of the checkpoint that a file lies in; None where it lies in none."""
    name = path.parent.name
    word = name.removeprefix("checkpoint-")
    return int(word) if word != name and word.isdecimal() else None
