"""The environment variables that rlprobe reads and sets.

`integrations/autoattach/sitecustomize.py`, which runs where no rlprobe may be, spells its own.
"""

from __future__ import annotations

# Set by `rlprobe record` for the command it runs.
RUN = "RLPROBE_RUN"  # the run directory
LAUNCH = "RLPROBE_LAUNCH"  # equal for all processes of one launch
STATUS = "RLPROBE_STATUS"  # a directory in which the launcher looks for word from its children
TAPS = "RLPROBE_TAPS"  # which modules are tapped by what: `module=tap`, comma-separated

# Set by people.
ROLE = "RLPROBE_ROLE"  # what a process does that is no trainer: `rollout`, `reward`, …
GROUP = "RLPROBE_GROUP"  # a group, by name or number, that may read recordings besides their owner
DEBUG = "RLPROBE_DEBUG"  # anything but empty: errors come with their traceback
ALLOW_LARGE = "RLPROBE_ALLOW_LARGE"  # anything but empty: no limit to the size of what is read
