"""`rlprobe record COMMAND`: the process around somebody's training.

command    runs it, waits, records how it ended
run_dirs   where, unless somebody says
unrecorded what stands in for the recorder where nothing can be recorded
handed_down  the environment that the command gets
limit      work on a disk that may hang
spools     what processes without a recorder left there, recorded
account    what was recorded, in one line
children   what the Python processes below it left in the status folder
signals    what comes to us, passed on once
ending     how the command ended, and what is known of it
streams    its outputs, connected to the relay (pipes, or ptys where we have a terminal)
relay      the process that passes output on byte for byte, and outlives us
intake     the thread that reads the copy that the relay hands over
output     the output as lines: the tail for a failure, rows where nobody records from the inside
settling, settled   the same as a scan of it has it, in the place of what was recorded
messages   what frameworks say in these lines, as events
"""

from rlprobe.launcher.command import run

__all__ = ["run"]
