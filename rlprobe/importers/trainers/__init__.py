"""Files that trainers leave beside their checkpoints: trainer states, rollouts."""
