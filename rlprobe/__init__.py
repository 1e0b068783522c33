"""rlprobe: flight recorder and doctor for RL fine-tuning runs."""

from rlprobe._version import __version__
