"""The environment variables by which a launcher and its processes know of each other.

The same as in `rlprobe.environment`, which may not be there.
"""

RUN = "RLPROBE_RUN"
STATUS = "RLPROBE_STATUS"
ROLE = "RLPROBE_ROLE"
