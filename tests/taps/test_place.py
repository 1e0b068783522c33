"""What a process is for the training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlprobe.taps import place, variables
from rlprobe.taps.slots import directory, slot_of


@pytest.mark.parametrize(
    ("actor", "role"),
    [
        ("", "trainer"),
        ("ActorRolloutRefWorker", "trainer"),
        ("PolicyModelActor", "trainer"),
        ("CriticWorker", "trainer"),
        ("RayTrainWorker", "trainer"),
        ("TaskRunner", "trainer"),
        ("Learner", "trainer"),
        ("LLMRayActor", "rollout"),
        ("vLLMRolloutWorker", "rollout"),
        ("AsyncVLLMInferenceEngine", "rollout"),
        ("RolloutWorker", "rollout"),
        ("SGLangEngine", "rollout"),
        ("RewardManagerWorker", "reward"),
        ("RewardModelActor", "reward"),
        ("MathVerifier", "reward"),
        ("EnvRunner", "trainer"),  # RLlib's, which its trainer sums up
        ("GymEnvironment", "environment"),
        ("Something", "trainer"),
    ],
)
def test_the_name_of_an_actor_tells_its_role(actor: str, role: str) -> None:
    assert place.role_of(actor) == role


def test_people_may_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variables.ROLE, "Judge-2")
    assert place.role() == "judge2"


def test_a_process_below_one_that_records_is_a_helper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variables.STATUS, str(tmp_path))
    code = "from rlprobe.taps import place; print(place.recording_parent())"
    below = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, code]

    def parent() -> int:
        done = subprocess.run(below, capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert parent() == 0
    (tmp_path / f"attached-{os.getpid()}").touch()
    assert parent() == os.getpid()


# --- which directory ---------------------------------------------------------------------------


@pytest.fixture
def status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(variables.STATUS, str(tmp_path))
    return tmp_path


def test_ranks_share_a_slot_and_other_names_get_the_next(status: Path) -> None:
    assert [slot_of(name) for name in ("a", "b", "a", "c", "b")] == [1, 2, 1, 3, 2]


def test_two_living_processes_of_one_name_are_two_runs(status: Path) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        (status / "trainer-1").symlink_to(f"a@{other.pid}")
        assert slot_of("a", alone=True) == 2
        assert slot_of("a", alone=True) == 2
    finally:
        other.kill()
        other.wait()


def test_a_process_that_died_is_followed_by_its_restart(status: Path) -> None:
    other = subprocess.Popen(["true"])
    other.wait()
    (status / "trainer-1").symlink_to(f"a@{other.pid}")
    assert slot_of("b", alone=True) == 2
    assert slot_of("a", alone=True) == 1


def test_directories_lie_beside_each_other() -> None:
    assert [directory("/r/x/", number) for number in (1, 2)] == ["/r/x/", "/r/x-2"]
