"""rlprobe: flight recorder and doctor for RL fine-tuning runs.

Inside training: `Recorder`, `SamplePolicy`. Afterwards: `scan`. Nothing heavy is imported until it
is used; `import rlprobe` is safe in every training process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlprobe._version import __version__
from rlprobe.errors import RlprobeError

if TYPE_CHECKING:
    from rlprobe.findings import Finding, Incident, ScanReport, Severity
    from rlprobe.recorder import Recorder, SamplePolicy
    from rlprobe.scan import scan

__all__ = [
    "Finding",
    "Incident",
    "Recorder",
    "RlprobeError",
    "SamplePolicy",
    "ScanReport",
    "Severity",
    "__version__",
    "scan",
]

_HOMES = {
    "Finding": "rlprobe.findings",
    "Incident": "rlprobe.findings",
    "Recorder": "rlprobe.recorder",
    "SamplePolicy": "rlprobe.recorder",
    "ScanReport": "rlprobe.findings",
    "Severity": "rlprobe.findings",
    "scan": "rlprobe.scan",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its home when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rlprobe' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
