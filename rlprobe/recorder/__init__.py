"""What runs inside training: hot path -> buffer -> writer thread -> sink.

recorder           the public class; appends and returns
harmless           calls whose arguments do not fit
late_calls         what is recorded after the end: counted, said, told
snapshot           what must be copied on the training thread, and what need not be
buffer             bounded queues between the threads; count what they had to drop
claim              the directory that is asked for, or one beside it where that is taken
process            one process's part of a recording, from its claim to its last word
own_files          what it writes beside the tables; makes a deleted directory again
lifecycle          fork, signals, exceptions, exit
failure            what is known of an exception or of a last line
launch             rank and world size from the launcher's environment
last_words         losses that the recording could not be told, for the next attempt

writer             the thread that drains the buffer; the only place that may block
requests           how others ask it, and wait no longer than they must
disk               how long it has waited for the disk
intake             what was pushed, as rows that a table can take
clock              time that never jumps
rollouts           which rollouts are kept, and the ring that a critical event writes out
redact             what of their text is taken out before it is stored
rollout_arguments  the arguments of `samples` as rollouts
group_names        whose groups are whose
backlog            rows that wait to be written
batches            rows as the bytes of shards; one that no column can take costs no other
encode             rows of metrics under canonical names
sink               Parquet shards and their merging
replacing          rows that take the place of what was written
health             what was lost and what failed: counted, warned of once, told
"""

from rlprobe.recorder.recorder import Recorder
from rlprobe.recorder.rollouts import SamplePolicy

__all__ = ["Recorder", "SamplePolicy"]
