"""Run all benchmarks, or those named on the command line."""

from __future__ import annotations

import sys
from importlib import import_module

NAMES = (
    "guards",
    "recorder_cost",
    "tapped_cost",
    "scan_cost",
    "read_cost",
    "startup",
    "trl_overhead",
)


def main() -> None:
    for name in sys.argv[1:] or NAMES:
        print(f"\n## {name}\n", flush=True)
        import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
