"""What `rlprobe calibrate` learnt: a configuration file with its reasons, and a few lines."""

from __future__ import annotations

from collections.abc import Sequence

from rlprobe.scan.calibration import Learnt


def toml(learnt: Sequence[Learnt], runs: int) -> str:
    """The `[knobs]` part of a configuration file, each entry with the alarms it was learnt from."""
    lines = [f"# Learnt by `rlprobe calibrate` from {runs} healthy runs.", ""]
    for item in learnt:
        if item.knobs:
            lines += [f"# {_rates(item)}", f"[knobs.{item.detector}]"]
            lines += [f"{name} = {value:g}" for name, value in item.knobs.items()] + [""]
        else:
            lines += [
                f"# {item.detector}: {_rates(item)}",
                "# no knob keeps it quiet: a waiver?",
                "",
            ]
    return "\n".join(lines)


def lines(learnt: Sequence[Learnt], runs: int) -> str:
    """The same for people."""
    if not learnt:
        return f"No alarm on {runs} healthy runs: nothing to learn.\n"
    told = [f"{item.detector:24} {_setting(item):28} {_rates(item)}" for item in learnt]
    return "\n".join(told) + "\n"


def _setting(item: Learnt) -> str:
    settings = ", ".join(f"{name} = {value:g}" for name, value in item.knobs.items())
    return settings or "no knob helps"


def _rates(item: Learnt) -> str:
    return (
        f"alarms on {item.before} of {item.judged} runs before, {item.after} after, "
        f"{item.expected} on runs left out"
    )
