"""Files and stores of experiment trackers: W&B, MLflow, Trackio."""
