"""One tap for each package; `install(module)` is called after the first import of a module of it.

accelerate         Accelerate's `Accelerator.log`
aim                Aim
clearml            ClearML
comet              Comet
keras              Keras's `fit`
lightning          Lightning's `self.log`
mlflow             MLflow
neptune            Neptune
ray                Ray Train, Tune and RLlib
stable_baselines3  Stable-Baselines3's Logger
stacks             RL stacks that log through an object of their own: verl, OpenRLHF, SkyRL, NeMo-RL
swanlab            SwanLab
tensorboard        SummaryWriter of torch and tensorboardX
trackio            trackio
transformers       Hugging Face's Trainer, where it cannot be recorded from the inside
wandb              Weights & Biases
"""
