"""A run in, a report out: which detectors can judge, what they find, what caused what.

context       the run as detectors see it
attempts      what of a run that was resumed is judged on its own, and what became of it
applicable    what of the catalogue is not of this kind of training
engine        runs the catalogue and isolates what fails
excerpts      what a reporter draws of a finding
verdict       the word for a run, and why it is not said of the whole of it
causal_order  which of two findings comes first, where their onsets alone do not tell
incidents     links findings by cause, finds the checkpoint to restore, tells the story
pulse         whether a run still lives
step_view     everything known about one step
calibration   smallest changes of knobs that keep the catalogue quiet on healthy runs
"""
