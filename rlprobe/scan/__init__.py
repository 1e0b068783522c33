"""A run in, a report out: which detectors can judge, what they find, what caused what.

context      the run as detectors see it
engine       runs the catalogue and isolates what fails
incidents    links findings by cause, finds the checkpoint to restore, tells the story
calibration  smallest changes of knobs that keep the catalogue quiet on healthy runs
step_view    everything known about one step
"""

from rlprobe.scan.engine import scan

__all__ = ["scan"]
