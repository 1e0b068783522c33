"""rlprobe: flight recorder and doctor for RL fine-tuning runs.

Inside training: `Recorder`, `SamplePolicy`. Afterwards: `open` a path, `diagnose` a run. Nothing
heavy is imported until it is used; `import rlprobe` is safe in every training process.
"""

import typing as _typing

from rlprobe._version import __version__
from rlprobe.errors import RlprobeError

if _typing.TYPE_CHECKING:
    from rlprobe._api import diagnose, open  # noqa: A004 - read as `rlprobe.open`
    from rlprobe.config import Config
    from rlprobe.findings import Finding, Incident, ScanReport, Severity
    from rlprobe.recorder import Recorder, SamplePolicy
    from rlprobe.store.run import Run

__all__ = [
    "Config",
    "Finding",
    "Incident",
    "Recorder",
    "RlprobeError",
    "Run",
    "SamplePolicy",
    "ScanReport",
    "Severity",
    "__version__",
    "diagnose",
    "open",
]

_HOMES = {
    "Config": "rlprobe.config",
    "Finding": "rlprobe.findings",
    "Incident": "rlprobe.findings",
    "Recorder": "rlprobe.recorder",
    "Run": "rlprobe.store.run",
    "SamplePolicy": "rlprobe.recorder",
    "ScanReport": "rlprobe.findings",
    "Severity": "rlprobe.findings",
    "diagnose": "rlprobe._api",
    "open": "rlprobe._api",
}


def __getattr__(name: str) -> object:
    """Import a public name from its home when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rlprobe' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What a REPL completes: names that were not asked for yet, too."""
    return sorted({*globals(), *__all__})
