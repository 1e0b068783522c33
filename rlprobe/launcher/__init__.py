"""`rlprobe record COMMAND`: the process around somebody's training.

command   runs it, waits, forwards signals, records how it ended
children  what the Python processes below it left in the status folder
streams   its output, passed through byte for byte (pipes, or ptys where we have a terminal)
messages  what frameworks say in it, as events
output    the output as lines: the tail for a failure, rows where nobody records from the inside
messages  what frameworks say in these lines, as events
"""

from rlprobe.launcher.command import run

__all__ = ["run"]
