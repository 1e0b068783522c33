"""Foreign logs -> runs. A format is one file in a wing; picked by content, then by name.

Wings: console, documents, recorders, tensorboard, trackers, trainers. What they share lies beside:

importer, formats  what an importer is; every importer there is, in order
source, compression a file to be read, bounded, decompressed and decoded
listening          who is told how much of a file has been read
byte_stream, wire  a file as a stream of bytes; fields of protocol buffers
numbers            numbers as frameworks spell them
steps, step_axis   which key is the step; which of a row's numbers it is
placing            events between rows -> events with the step of those rows
ranks_of_rows      rows that say which rank they are of -> the ranks of one run
renumbering        rows numbered by another counter of theirs
stepless           rows without a step among rows that have one
long_form          rows that name the metric of their value, or their run
evaluations        which rows are those of an evaluation
unread             counts what looks like metrics and was not understood
rows, points       rows of {key: value}, or points of one metric each -> columns of numbers
attempts, assemble relaunches in one log; what was read -> one run, under canonical names
plain_trainer      the Trainer without TRL, which logs under the same names
placing            events between rows -> events with a step and a launch
directory, folders files of a directory; folders in it that are read as a whole
membership         what the names of files tell: run, rank, launch
rotation           files that are one log
gathering, gathered a directory of logs -> what is of one run
told_twice         logs that tell the same run
looked_at          what became of each file of a directory
archives           zip and tar, read as the directory that they hold
open               a path -> runs: recordings and every known format
faults             what a reader did not expect costs its file, and is said
refusal            what a file holds that could not be read, and the format it is nearest to
joining            runs that were opened one by one -> one run
"""

from rlprobe.importers.open import open_runs

__all__ = ["open_runs"]
