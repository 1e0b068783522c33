"""A disk that fails under a recorded TRL run: the training must come out the same, bit for bit.

At a random step the disk is full, read-only, tells EIO, hangs, or the directory is deleted. Weights
and the states of all random number generators are compared with the run that nobody recorded, and
what is missing in the recording must have been said, in it or on stderr.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

STEPS = 24
FAULTS = ("none", "full", "read_only", "eio", "hang", "deleted")
SAME, HARMED, SILENT, SLOW = "same", "HARMED", "SILENT LOSS", "SLOW"
_SLOWER = 12.0  # seconds that a run may take longer: its few waits are bounded by `flush_seconds`
_SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "OMP_NUM_THREADS": "1",
    "ACCELERATE_USE_CPU": "true",
}


class Disk:
    """A small file system of its own, and what goes wrong with it."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.folder = folder / "disk"
        self.run_dir = self.folder / "run"
        self._random = random
        self._undo: list[Callable[[], object]] = []
        self.folder.mkdir()
        size = "size=2m"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", self.folder], check=True)

    def fail(self, fault: str) -> None:
        """From now on."""
        getattr(self, f"_{fault}")()

    def _none(self) -> None:
        pass

    def _full(self) -> None:
        hog = self.folder / "hog"
        with contextlib.suppress(OSError), hog.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        if self._random.random() < 0.5:  # and is free again a little later
            timer = threading.Timer(0.3, hog.unlink)
            timer.start()
            self._undo.append(timer.join)

    def _read_only(self) -> None:
        subprocess.run(["mount", "-o", "remount,ro", self.folder], check=False)

    def _eio(self) -> None:
        def failing(descriptor: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        self._replace_fsync(failing)

    def _hang(self) -> None:
        over = threading.Event()
        self._undo.append(over.set)

        def hanging(descriptor: int) -> None:
            over.wait(600)

        self._replace_fsync(hanging)

    def _replace_fsync(self, function: Callable[[int], None]) -> None:
        real = os.fsync
        os.fsync = function  # type: ignore[assignment]
        self._undo.insert(0, lambda: setattr(os, "fsync", real))

    def _deleted(self) -> None:
        shutil.rmtree(self.run_dir, ignore_errors=True)

    def mend(self) -> None:
        """What hangs goes on; the file system stays, to be looked at."""
        for undo in self._undo:
            undo()

    def close(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", "-l", self.folder], check=False)


def trained(folder: Path, run_dir: Path | None, at: int, fail: Callable[[], None]) -> str:
    """Train; a digest of weights and generators. At step `at` something happens to the disk."""
    import torch
    from transformers import TrainerCallback

    from tests.integrations import tiny_grpo as tiny

    class Failing(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == at:
                fail()

    torch.set_num_threads(1)
    trainer = tiny.trainer_of(
        tiny.fresh_model(folder / "model", 0),
        tiny.Faults("none"),
        Failing(),
        output_dir=str(folder / "out"),
        logging_steps=1,
        per_device_train_batch_size=8,
        max_steps=STEPS,
        beta=0.04,
        save_strategy="no",
        seed=0,
    )
    if run_dir is not None:
        from rlprobe.integrations.trl import attach

        attach(trainer, run_dir)
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train()
    return tiny.state_hash(trainer.model)


def attempt(fault: str, seed: int, expected: str, usual: float) -> str:
    """One recorded training under a fault, and what became of it."""
    random = Random(f"{fault} {seed}")
    with (
        tempfile.TemporaryDirectory(
            prefix="rlprobe-disks-",
            ignore_cleanup_errors=True,  # a writer that hung may go on in it
        ) as name,
        _stderr() as said,
    ):
        folder = Path(name)
        disk = Disk(folder, random)
        try:
            begin = time.monotonic()
            digest = trained(
                folder, disk.run_dir, random.randrange(1, STEPS), lambda: disk.fail(fault)
            )
            took = time.monotonic() - begin
            disk.mend()
            if digest != expected:
                return HARMED
            if took > usual + _SLOWER:
                return f"{SLOW}: {took:.0f} s"
            return SAME if _is_told(disk.run_dir, said) else SILENT
        except Exception as error:
            return f"{HARMED}: {type(error).__name__}: {error}"
        finally:
            disk.mend()
            disk.close()


def _is_told(run_dir: Path, said: Path) -> bool:
    """Whether all steps are in the recording, or something was said of those that are not."""
    from rlprobe.store.recording import Recording

    if "rlprobe" in said.read_text(errors="replace"):
        return True
    with contextlib.suppress(Exception):
        recording = Recording(run_dir)
        whole = set(range(1, STEPS + 1)) <= set(recording.steps.step.tolist())
        return whole or bool(recording.info.health)
    return False


@contextlib.contextmanager
def _stderr() -> Iterator[Path]:
    """What is written to standard error meanwhile."""
    with tempfile.NamedTemporaryFile(prefix="rlprobe-stderr-") as file:
        sys.stderr.flush()
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                yield Path(file.name)
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)


@functools.cache
def unrecorded() -> tuple[str, float]:
    """The digest of the training that nobody records, and how many seconds it takes."""
    os.environ.update(_SETTINGS)
    with tempfile.TemporaryDirectory(prefix="rlprobe-disks-") as name:
        digest = trained(Path(name), None, 0, lambda: None)
        begin = time.monotonic()
        again = trained(Path(name), None, 0, lambda: None)
        usual = time.monotonic() - begin
    assert again == digest, "the training itself does not come out the same twice"
    return digest, usual


def campaign(fault: str, count: int, first: int = 0) -> Counter[str]:
    """Trainings under a fault: how often they came out the same."""
    digest, usual = unrecorded()
    outcomes: Counter[str] = Counter()
    for seed in range(first, first + count):
        outcome = attempt(fault, seed, digest, usual)
        outcomes[outcome.partition(":")[0]] += 1
        if outcome != SAME:
            print(f"{fault}, seed {seed}: {outcome}", flush=True)
    return outcomes
