"""A disk that fails under a recorded training does not reach it: the same weights, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.reliability import disks

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", autouse=True)
def _own_file_systems(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("mounted")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    subprocess.run(["umount", folder], check=True)


def test_a_training_comes_out_the_same_whatever_the_disk_does() -> None:
    names = [f"disk-{fault}" for fault in disks.FAULTS]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.reliability", *names, "--count", "2", "--dry"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    for name in names:
        assert f"{name}: 2 attempts {{'same': 2}}" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
