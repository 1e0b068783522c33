"""Which module of which package is tapped by what.

Another package is tapped by an entry point of the group `rlprobe.taps`, installed beside rlprobe:
its name is the module that is waited for, its value `package.module:install`, which is called with
that module right after its first import.
"""

from __future__ import annotations

from typing import Dict, List

GROUP = "rlprobe.taps"

# module that is waited for -> module of this package
HOOKS: Dict[str, str] = {
    "transformers.trainer": "transformers",
    "wandb.sdk.wandb_run": "wandb",
    "wandb.sdk.lib.noop_run": "wandb",
    "wandb.sdk.wandb_summary": "wandb",
    "wandb.sdk.lib.disabled": "wandb",
    "torch.utils.tensorboard.writer": "tensorboard",
    "tensorboardX.writer": "tensorboard",
    "mlflow.tracking.client": "mlflow",
    "mlflow.tracking.fluent": "mlflow",
    "trackio.run": "trackio",
    "swanlab.sdk.internal.run": "swanlab",
    "swanlab.data.run.main": "swanlab",
    "comet_ml.experiment": "comet",
    "aim.sdk.run": "aim",
    "neptune.handler": "neptune",
    "neptune.attributes.series.series": "neptune",
    "clearml.logger": "clearml",
    "lightning.pytorch.trainer.connectors.logger_connector.logger_connector": "lightning",
    "pytorch_lightning.trainer.connectors.logger_connector.logger_connector": "lightning",
    "stable_baselines3.common.logger": "stable_baselines3",
    "ray.train._internal.session": "ray",
    "ray.train.v2.api.train_fn_utils": "ray",
    "ray.tune.trainable.trainable_fn_utils": "ray",
    "ray.tune.trainable.trainable": "ray",
    "ray.tune.callback": "ray",
    "ray.train.v2._internal.execution.worker_group.thread_runner": "ray",
    "ray.air.integrations.wandb": "ray",
    "accelerate.accelerator": "accelerate",
    "keras.src.callbacks.callback_list": "keras",
    "verl.utils.tracking": "stacks",
    "skyrl.train.utils.tracking": "stacks",
    "skyrl_train.utils.tracking": "stacks",
    "openrlhf.utils.logging_utils": "stacks",
    "nemo_rl.utils.logger": "stacks",
}


def as_text(others: List[str]) -> str:
    """The hooks as the environment carries them: `module=tap`, comma-separated.

    Args:
        others: those of entry points, `module=package.module:function`.
    """
    return ",".join([*("=".join(pair) for pair in HOOKS.items()), *others])
