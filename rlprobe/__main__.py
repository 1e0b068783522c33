"""`python -m rlprobe`."""

import sys

from rlprobe.cli import main

if __name__ == "__main__":
    sys.exit(main())
