"""For authors of detectors: cases that are written down, and the contract that a detector keeps.

    from rlprobe.testing import check_detector

    def test_my_pathology():
        check_detector(MyPathology, "my_pathology.toml")

cases       a tiny run written down in TOML
names       whether every name that a detector uses means something
contract    the page, the case file, each case
"""

from rlprobe.testing.cases import load_cases, run_of
from rlprobe.testing.contract import check_detector

__all__ = ["check_detector", "load_cases", "run_of"]
