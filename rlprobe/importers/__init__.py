"""Foreign logs -> runs. A format is one file in a wing; picked by content, then by name.

Wings: console, documents, tensorboard, trackers, trainers. What they share lies beside this file:

importer, formats  what an importer is; every importer there is, in order
source             a file to be read, bounded, decompressed and decoded
byte_stream, wire  a file as a stream of bytes; fields of protocol buffers
numbers            numbers as frameworks spell them
steps, step_axis   which key is the step; which of a row's numbers it is
rows, points       rows of {key: value}, or points of one metric each -> columns of numbers
attempts, assemble relaunches in one log; what was read -> one run, under canonical names
placing            events between rows -> events with a step and a launch
directory, folders files and folders of a directory, and the run that each is of
open               a path -> runs: recordings and every known format
joining            runs that were opened one by one -> one run
"""

from rlprobe.importers.open import open_runs

__all__ = ["open_runs"]
