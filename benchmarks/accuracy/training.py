"""One run of the lab: a trainer on a tiny local model, with one fault, recorded by `attach`.

python -m benchmarks.accuracy.training OUT --fault dead_verifier --at 150 --seed 1 --steps 300
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

from benchmarks.accuracy import ppo
from benchmarks.accuracy.breaking import Fault
from benchmarks.accuracy.trainers import BUILT
from rlprobe import Recorder
from rlprobe.integrations.trl import attach

LAUNCH = "lab"


class OtherRanks(TrainerCallback):  # type: ignore[misc]
    """Ranks 1 to 3 as recorders of their own: the loss of rank 0 with noise, one of them off."""

    def __init__(self, run_dir: Path, fault: Fault) -> None:
        self.fault = fault
        self.noise = np.random.default_rng(0)
        self.recorders = [
            Recorder(run_dir, rank=rank, world_size=4, launch=LAUNCH, signals=False)
            for rank in (1, 2, 3)
        ]
        self.own: Recorder | None = None

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        loss = (kwargs.get("logs") or {}).get("loss")
        if loss is None or self.own is None:
            return
        self.own.rank_step(state.global_step, loss=float(loss))
        for recorder in self.recorders:
            off = 5.0 if self.fault.active and recorder.rank_id == 2 else 0.0
            value = float(loss) + float(self.noise.normal(0, 0.01)) + off
            recorder.rank_step(state.global_step, loss=value)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        for recorder in self.recorders:
            recorder.close()


class Stop(TrainerCallback):  # type: ignore[misc]
    """Ends training early, with the schedule of the whole run."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.at:
            control.should_training_stop = True


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--trainer", default="grpo", choices=[*BUILT, "ppo"])
    parser.add_argument("--fault", default="none")
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=140)
    parser.add_argument("--stop", type=int, default=0, help="stop here, as if killed")
    parser.add_argument("--resume")
    parser.add_argument("--beta", type=float, default=0.04)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--schedule", default="linear")
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--optimizer", default="adamw_torch")
    parser.add_argument("--loss-type", default="dapo")
    parser.add_argument("--group", type=int, default=4)
    parser.add_argument("--evaluate", type=int, default=0, help="after so many steps (SFT)")
    parser.add_argument("--logging-steps", type=int, default=1)
    return parser.parse_args(words)


@contextlib.contextmanager
def saved(trainer: Any) -> Iterator[None]:
    """The trainer's own log is written, however the run ends."""
    try:
        yield
    finally:
        trainer.save_state()


def main(words: Sequence[str] | None = None) -> None:
    given = arguments(words)
    torch.set_num_threads(1)
    fault = Fault(given.fault, given.at)
    if given.trainer == "ppo":
        ppo.train(given, fault)
        return
    trainer = BUILT[given.trainer](given, fault)
    trainer.add_callback(fault)
    if given.stop:
        trainer.add_callback(Stop(given.stop))
    fault.wrap(trainer)
    run_dir = given.out / "recording"
    launch: Callable[..., Any] = attach
    if given.fault == "bad_rank":
        others = OtherRanks(run_dir, fault)
        trainer.add_callback(others)
        others.own = launch(trainer, run_dir, world_size=4, launch=LAUNCH)
    else:
        launch(trainer, run_dir)
    with saved(trainer):
        trainer.train(resume_from_checkpoint=given.resume)


if __name__ == "__main__":
    main()
