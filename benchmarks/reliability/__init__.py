"""Attempts to break rlprobe, counted: what `docs/promises.md` says is what these found.

`python -m benchmarks.reliability.NAME` runs one; each says what it counts.
"""
