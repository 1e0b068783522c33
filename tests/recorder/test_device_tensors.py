"""A tensor on a device: cloned on the training thread, read on the writer's."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlprobe import Recorder
from rlprobe.store.recording import Recording

pytestmark = pytest.mark.integration
torch = pytest.importorskip("torch")


def device_tensor(value: Any, waits: list[str]) -> Any:
    """A tensor that says it is on a GPU, and notes which thread waits for it."""

    class OnDevice(torch.Tensor):  # type: ignore[misc, name-defined]
        device = SimpleNamespace(type="cuda")

        def wait(self) -> Any:
            waits.append(threading.current_thread().name)
            return self.as_subclass(torch.Tensor)

        def detach(self) -> Any:
            return self

        def clone(self) -> Any:
            return torch.Tensor.clone(self.as_subclass(torch.Tensor)).as_subclass(OnDevice)

        def item(self) -> Any:
            return self.wait().item()

        def cpu(self) -> Any:
            return self.wait()

        def tolist(self) -> Any:
            return self.wait().tolist()

        def __float__(self) -> float:
            return float(self.wait())

    return torch.tensor(value).as_subclass(OnDevice)


def test_the_training_thread_never_waits_for_a_device(tmp_path: Path) -> None:
    waits: list[str] = []
    recorder = Recorder(tmp_path, flush_seconds=0.05)
    loss = device_tensor(1.5, waits)
    rewards = device_tensor([0.0, 1.0], waits)
    recorder.step(1, loss=loss, rewards=rewards)
    recorder.samples(1, prompts=["p", "p"], completions=["a", "b"], rewards=rewards)
    loss.as_subclass(torch.Tensor).fill_(99.0)  # what the recorder holds must not change with it
    assert waits == []
    recorder._buffer.wake.set()
    deadline = threading.Event()
    while len(waits) < 3 and not deadline.wait(0.05):
        pass
    recorder.close()
    assert set(waits) == {"rlprobe-writer"}
    run = Recording(tmp_path)
    found = run.steps.series("loss")
    assert found is not None
    assert list(found.values) == [1.5]
    assert [rollout.reward for rollout in run.rollouts(1)] == [0.0, 1.0]


def test_tensors_on_the_cpu_of_every_kind(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.step(
            1,
            loss=torch.tensor(0.5, dtype=torch.bfloat16),
            n=torch.tensor(3),
            kl_mean=torch.tensor([0.25]),
            rewards=torch.tensor([[1.0, 0.0], [1.0, 1.0]], requires_grad=True),
        )
    run = Recording(tmp_path)
    for name, value in (("loss", 0.5), ("n", 3.0), ("zero_variance_group_fraction", 0.5)):
        found = run.steps.series(name)
        assert found is not None
        assert list(found.values) == [value]
