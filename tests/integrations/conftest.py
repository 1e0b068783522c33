"""Real trainings, each run once per session: unchanged scripts under `rlprobe record`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlprobe.store.recording import Recording
from rlprobe.values import Event
from tests.launcher import processes

SCRIPT = Path(__file__).with_name("tiny_grpo.py")
ENVIRONMENT = {
    **processes.ENVIRONMENT,
    "ACCELERATE_USE_CPU": "true",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_OFFLINE": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
}


@dataclass
class Training:
    """A training that is over.

    Attributes:
        out: what the script wrote: checkpoints, trainer state, hash of the final state.
        run_dir: where it was recorded, if it was.
    """

    code: int
    stdout: bytes
    stderr: bytes
    out: Path
    run_dir: Path

    @property
    def recording(self) -> Recording:
        return Recording(self.run_dir)

    def events(self, kind: str, *, rank: int = 0, attempt: int | None = None) -> list[Event]:
        return [
            event
            for event in self.recording.events
            if event.kind == kind
            and event.rank == rank
            and (attempt is None or event.attempt == attempt)
        ]

    def log_history(self) -> list[dict[str, Any]]:
        """The Trainer's own log, without its closing row."""
        state = json.loads((self.out / "trainer_state.json").read_text())
        return [row for row in state["log_history"] if "train_runtime" not in row]

    def state(self, rank: int = 0) -> str:
        return (self.out / f"state-{rank}.txt").read_text()


Train = Callable[..., Training]
Start = Callable[..., tuple[subprocess.Popen[bytes], Training]]


def _train(folder: Path, *options: str, recorded: bool = True, ranks: int = 1) -> Training:
    out, run_dir = folder / "out", folder / "run"
    program = [sys.executable]
    if ranks > 1:
        program = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        program += ["--nproc-per-node", str(ranks)]
    command = [*program, str(SCRIPT), str(out), *options]
    if recorded:
        command = [*processes.RECORD, "--run", str(run_dir), "--", *command]
    done = subprocess.run(
        command, capture_output=True, env=ENVIRONMENT, cwd=folder, check=False, timeout=280
    )
    return Training(done.returncode, done.stdout, done.stderr, out, run_dir)


@pytest.fixture(scope="session")
def train(tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Run the tiny GRPO script in a folder of its own."""

    def run(name: str, *options: str, recorded: bool = True, ranks: int = 1) -> Training:
        folder = tmp_path_factory.mktemp(name)
        return _train(folder, *options, recorded=recorded, ranks=ranks)

    return run


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start the script recorded, and leave it running."""

    def run(name: str, *options: str) -> tuple[subprocess.Popen[bytes], Training]:
        training = Training(0, b"", b"", tmp_path / "out", tmp_path / name)
        command = [*processes.RECORD, "--run", str(training.run_dir), "--", sys.executable, "-u"]
        process = subprocess.Popen(
            [*command, str(SCRIPT), str(training.out), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT,
            start_new_session=True,
        )
        return process, training

    return run


@pytest.fixture(scope="session")
def plain(train: Train) -> Training:
    """200 steps, not recorded."""
    return train("plain", recorded=False)


@pytest.fixture(scope="session")
def healthy(train: Train) -> Training:
    """The same 200 steps, recorded."""
    return train("healthy")


@pytest.fixture(scope="session")
def nan_weight(train: Train) -> Training:
    """A weight turns NaN after step 150."""
    return train("nan_weight", "--fault", "nan_weight@150")


@pytest.fixture(scope="session")
def grad_overflow(train: Train) -> Training:
    """The gradients of step 150 overflow."""
    return train("grad_overflow", "--fault", "grad_overflow@150")


@pytest.fixture(scope="session")
def dead_verifier(train: Train) -> Training:
    """From step 20 on, the verifier returns nothing but 0."""
    return train("dead_verifier", "--steps", "40", "--fault", "dead_verifier@20")


@pytest.fixture(scope="session")
def resumed(nan_weight: Training, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """The broken run, resumed from its checkpoint of step 100 into the same recording."""
    folder = tmp_path_factory.mktemp("resumed")
    shutil.copytree(nan_weight.out, folder / "out")
    shutil.copytree(nan_weight.run_dir, folder / "run")
    return _train(folder, "--resume", str(folder / "out" / "checkpoint-100"))


@pytest.fixture(scope="session")
def two_ranks(train: Train) -> Training:
    """Two processes, 20 steps with two micro-batches each, logged every 5."""
    options = ("--steps", "20", "--accumulate", "2", "--logging-steps", "5", "--batch", "4")
    return train("two_ranks", *options, ranks=2)
