"""A directory -> the files in it that may be logs; what else lies there is counted."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from rlprobe.importers import compression

MOST_FILES = 100_000
_DEEPEST = 12
_NO_LOGS = frozenset(
    {".py", ".pyc", ".md", ".rst", ".pt", ".pth", ".bin", ".safetensors", ".ckpt", ".png", ".jpg"}
    | {".jpeg", ".gif", ".svg", ".pdf", ".whl", ".so", ".toml", ".yaml", ".yml", ".cfg", ".ini"}
    | {".sh", ".model", ".lock", ".npy", ".npz", ".pkl", ".h5", ".css", ".js", ".mp4", ".html"}
)
_NO_LOG_NAMES = frozenset(
    {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
    | {"vocab.json", "special_tokens_map.json", "added_tokens.json", "adapter_config.json"}
    | {"model.safetensors.index.json", "preprocessor_config.json", "chat_template.json"}
    | {"args.json", "wandb-metadata.json", "requirements.txt", "merges.txt", "LICENSE", "README"}
    | {"debug.log", "debug-internal.log", "debug-core.log"}  # of wandb itself
)
_ARCHIVES = frozenset({".zip", ".tar", ".tgz", ".tbz2", ".txz"})
_NOTEBOOK = ".ipynb"


class Listing:
    """The files below a directory.

    Args:
        without: directories in it that are not looked into.

    Attributes:
        logs: those that may be logs, in order of their names.
        notebooks: they hold a run and much else: looked at where nothing else is one.
        archives: packed directories, which are opened only where they are given by themselves.
        passed: how many others there are, by suffix or name: what is no log by its name.
        cut: whether there are more files than were looked at.
    """

    def __init__(self, directory: Path, without: Collection[Path] = ()) -> None:
        self._without = frozenset(map(str, without))
        self.logs: list[Path] = []
        self.notebooks: list[Path] = []
        self.archives: list[Path] = []
        self.passed: Counter[str] = Counter()
        self.cut = False
        for entry in self._entries(directory):
            self._sort(entry)

    def _entries(self, directory: Path) -> Iterator[os.DirEntry[str]]:
        """Every visible file, at most MOST_FILES looked at.

        Links to directories are not followed, so that a loop cannot trap the walk; what may not be
        read is passed over.
        """
        seen = 0
        waiting = [(directory, 0)]
        while waiting:
            place, depth = waiting.pop()
            below: list[tuple[Path, int]] = []
            for entry in _scanned(place):
                seen += 1
                if seen > MOST_FILES:
                    self.cut = True
                    return
                if entry.name.startswith(".") or entry.path in self._without:
                    continue
                if _is_directory(entry):
                    below.append((Path(entry.path), depth + 1))
                else:
                    yield entry
            if depth < _DEEPEST:
                waiting += reversed(below)

    def _sort(self, entry: os.DirEntry[str]) -> None:
        if not _is_file(entry):
            return
        path, suffix = Path(entry.path), Path(entry.name).suffix.lower()
        if not may_be_log(entry.name):
            self.passed[suffix if suffix in _NO_LOGS else entry.name] += 1
        elif is_archive(entry.name):
            self.archives.append(path)
        elif suffix == _NOTEBOOK:
            self.notebooks.append(path)
        else:
            self.logs.append(path)


def may_be_log(name: str) -> bool:
    """Whether a file of this name may be a log, or hold some."""
    return name not in _NO_LOG_NAMES and Path(name).suffix.lower() not in _NO_LOGS


def is_archive(name: str) -> bool:
    """Whether a file of this name is a packed directory."""
    for suffix in compression.SUFFIXES:
        name = name.removesuffix(suffix)
    return Path(name).suffix.lower() in _ARCHIVES


def _scanned(place: Path) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(place), key=lambda entry: entry.name)
    except OSError:
        return []


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether it is a regular file with something in it."""
    try:
        return entry.is_file() and entry.stat().st_size > 0
    except OSError:
        return False
