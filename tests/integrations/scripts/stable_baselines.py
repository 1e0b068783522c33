"""Stable-Baselines3: stable_baselines.py OUT ppo|dqn [tensorboard]."""

import sys
from pathlib import Path
from typing import Any

import outcome
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter

out, algorithm, *folder = sys.argv[1:]
outcome.seed(2)


class Kept(KVWriter):
    """Keeps what the Logger writes, in full precision."""

    def __init__(self) -> None:
        self.series: outcome.Stored = {}

    def write(self, key_values: Any, key_excluded: Any, step: int = 0) -> None:
        for name, value in key_values.items():
            self.series.setdefault(name, {})[step] = float(value)

    def close(self) -> None:
        pass


class Listen(BaseCallback):
    """Adds the writer to whatever the model logs to."""

    kept = Kept()

    def _on_training_start(self) -> None:
        self.logger.output_formats.append(self.kept)

    def _on_step(self) -> bool:
        return True


tensorboard = folder[0] if folder else None
if algorithm == "ppo":
    model = PPO(
        "MlpPolicy",
        "CartPole-v1",
        n_steps=64,
        batch_size=32,
        n_epochs=2,
        seed=4,
        verbose=1,
        device="cpu",
        tensorboard_log=tensorboard,
    )
else:
    model = DQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_starts=50,
        buffer_size=500,
        train_freq=4,
        seed=4,
        verbose=1,
        device="cpu",
        tensorboard_log=tensorboard,
    )
model.learn(total_timesteps=512, log_interval=1, callback=None if tensorboard else Listen())
stored = outcome.events(next(Path(tensorboard).iterdir())) if tensorboard else Listen.kept.series
outcome.write(out, stored, outcome.digest(dict(model.policy.state_dict())))
