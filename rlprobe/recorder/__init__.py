"""What runs inside training: hot path -> buffer -> writer thread -> sink.

recorder    the public class; appends and returns
failure     what is known of an exception or of a last line
snapshot    what must be copied on the training thread, and what need not be
buffer      bounded queue between the threads; counts what it had to drop
encode      rows of metrics under canonical names, on the writer thread
rollouts    which rollouts are kept, and the ring that a critical event writes out
sink        Parquet shards and their merging
writer      the thread that drains the buffer; the only place that may block
lifecycle   fork, signals, exceptions, exit
launch      rank and world size from the launcher's environment
"""

from rlprobe.recorder.recorder import Recorder
from rlprobe.recorder.rollouts import SamplePolicy

__all__ = ["Recorder", "SamplePolicy"]
