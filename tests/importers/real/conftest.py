"""Runs the scripts beside it with the libraries themselves, offline."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
Produce = Callable[..., None]


@pytest.fixture
def produce(tmp_path: Path) -> Produce:
    """Run a script in a directory; the test is skipped where a library is missing."""

    def run(script: str, *arguments: object, needs: tuple[str, ...], cwd: Path = tmp_path) -> None:
        missing = [name for name in needs if find_spec(name) is None]
        if missing:
            pytest.skip(f"not installed: {', '.join(missing)}")
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "ACCELERATE_USE_CPU": "true",
            "DO_NOT_TRACK": "1",
            "HF_DATASETS_OFFLINE": "1",
            "HF_HOME": str(home / "hf"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_OFFLINE": "1",
            "MLFLOW_ALLOW_FILE_STORE": "true",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore",
            "TOKENIZERS_PARALLELISM": "false",
            "TRACKIO_DIR": str(tmp_path / "trackio"),
            "TRANSFORMERS_OFFLINE": "1",
            "TRL_EXPERIMENTAL_SILENCE": "1",
            "WANDB_DIR": str(tmp_path),
            "WANDB_MODE": "offline",
            "WANDB_SILENT": "true",
        }
        command = [sys.executable, str(HERE / script), *map(str, arguments)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=environment,
            cwd=cwd,
            check=False,
            timeout=280,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]

    return run
