"""Other tools on the same logs: their own command lines, where they are installed.

They get the trainer's log as JSONL, one row per logged step. An alarm is whatever they report at
warning or above; its step is taken from where the tool puts it, in words if need be.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.accuracy.scoring import Alarm

OLD = Path(sys.prefix) / "rlprobe-0.1.0"
LOUD = {"warning", "warn", "error", "critical", "high", "medium", "fail"}
Adapter = Callable[[Path], Iterator[Alarm]]


def installed() -> dict[str, Adapter]:
    """The peers that can be run here, by name."""
    programs: dict[str, tuple[str, Adapter]] = {
        "rldoctor": ("rl-doctor", _rldoctor),
        "losslint": ("losslint", _losslint),
        "runmedic": ("runmedic", _runmedic),
        "trainproof": ("trainproof", _trainproof),
    }
    found = {name: adapter for name, (program, adapter) in programs.items() if _there(program)}
    return {**found, **({"rlprobe 0.1.0": _published} if OLD.is_dir() else {})}


def _there(program: str) -> bool:
    return _program(program) is not None


def _program(name: str) -> str | None:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


def jsonl_of(trainer_state: Path, out: Path) -> Path:
    """The log history as JSONL, without the closing row."""
    history = json.loads(trainer_state.read_text())["log_history"]
    rows = [row for row in history if "train_runtime" not in row]
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return out


def _json(program: str, *arguments: str) -> Any:
    """What a tool printed, or None: a usage error, or a crash of the tool."""
    found = _program(program)
    if found is None:
        return None
    done = subprocess.run(
        [found, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    try:
        return json.loads(done.stdout)
    except ValueError:
        return None


def _loud(item: dict[str, Any]) -> bool:
    return str(item.get("severity") or item.get("level") or "").lower() in LOUD


def _first_number(text: str, *forms: str) -> int | None:
    for form in forms:
        found = re.search(form, text)
        if found:
            return int(found.group(1))
    return None


def _rldoctor(log: Path) -> Iterator[Alarm]:
    report = _json("rl-doctor", "diagnose", str(log), "-f", "json") or {}
    for item in filter(_loud, report.get("findings") or ()):
        text = f"{item.get('summary')} {item.get('evidence')}"
        step = _first_number(text, r"first at step (\d+)", r"detected at step (\d+)")
        yield Alarm(str(item.get("detector")), step)


def _losslint(log: Path) -> Iterator[Alarm]:
    arguments = ("check", "--format", "json", "--fail-severity", "warning", str(log))
    report = _json("losslint", *arguments) or {}
    for item in filter(_loud, report.get("findings") or ()):
        details = item.get("details") or {}
        steps = details.get("steps") or [details.get("since_step")]
        yield Alarm(str(item.get("check")), steps[0])


def _runmedic(log: Path) -> Iterator[Alarm]:
    runs = _json("runmedic", "diagnose", "--json", "--fail-on", "warning", str(log)) or ()
    for item in filter(_loud, (item for run in runs for item in run.get("findings") or ())):
        listed = _first_number(str(item.get("evidence")), r"spike steps: \[?(\d+)")
        yield Alarm(str(item.get("check")), item.get("step") if listed is None else listed)


_REPLAY = """
import json, sys
from rlprobe import Recorder
names = {"kl": "kl_mean", "entropy": "entropy_mean", "reward": "reward_mean", "loss": "loss",
         "reward_std": "reward_std", "grad_norm": "grad_norm", "learning_rate": "lr",
         "completions/mean_length": "completion_len_mean",
         "completions/clipped_ratio": "max_len_hit_frac",
         "frac_reward_zero_std": "zero_variance_group_frac"}
recorder = Recorder(sys.argv[2], algorithm="grpo", install_handlers=False)
for line in open(sys.argv[1]):
    row = json.loads(line)
    known = {new: row[old] for old, new in names.items() if row.get(old) is not None}
    paid = {k.split("/")[1]: v for k, v in row.items() if k.startswith("rewards/") and "mean" in k}
    recorder.log_step(row["step"], reward_components=paid, **known)
recorder.close()
"""


def _published(log: Path) -> Iterator[Alarm]:
    """The published rlprobe 0.1.0, which reads its own recordings only: the log is replayed."""
    with tempfile.TemporaryDirectory() as scratch:
        run_dir = str(Path(scratch) / "run")
        _old([sys.executable, "-c", _REPLAY, str(log), run_dir])
        printed = _old([sys.executable, str(OLD / "bin" / "rlprobe"), "doctor", run_dir, "--json"])
    try:
        found = json.loads(printed)
    except ValueError:
        return
    for item in filter(_loud, found):
        yield Alarm(str(item.get("signature_id")), item.get("first_step"))


def _old(command: list[str]) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(OLD)},
        cwd=OLD,  # not this tree: its rlprobe would be imported first
    )
    return done.stdout


def _trainproof(log: Path) -> Iterator[Alarm]:
    report = _json("trainproof", "epoch", "--json", str(log)) or {}
    for part in report.get("reports") or ():
        for item in filter(_loud, part.get("findings") or ()):
            text = json.dumps(item)
            step = _first_number(text, r"first at step (\d+)", r"Steps: \[(\d+)")
            yield Alarm(str(item.get("id")), step)
