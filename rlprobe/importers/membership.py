"""What the names of files tell: the run that each is of, its rank, its launch, its place in a log.

train.log train.log.1 train.log.2.gz    one log, rotated: the highest number is the oldest
app.log-20261130 app.log.2026-11-30     the same, by date
metrics_rank0.jsonl, worker-2/run.csv   ranks of one run
attempt_0/3/stdout.log                  torchrun: launch 0, rank 3
slurm-17.out slurm-17.err               what one process wrote to its two outputs
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlprobe.importers import compression

_BEFORE, _AFTER = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"
_WORDS = "rank|worker|proc(?:ess)?|node|host|attempt|part|restart|pre_resume|shard"
# Parts of a name that tell files of one run apart: its ranks, its launches, its processes.
_MEMBER = re.compile(
    rf"[._-]?{_BEFORE}(?:(?:global|local)_?)?(?:{_WORDS})[._-]?\d+{_AFTER}"
    rf"|[._-]r\d{{3,5}}{_AFTER}",
    re.IGNORECASE,
)
_MEMBER_FOLDERS = frozenset({"trainer", "orchestrator"})
_GLOBAL = re.compile(rf"{_BEFORE}global_?rank[._-]?(\d{{1,7}}){_AFTER}", re.IGNORECASE)
_RANK = re.compile(rf"{_BEFORE}(?:local_?)?rank[._-]?(\d{{1,7}}){_AFTER}", re.IGNORECASE)
_PROCESS = re.compile(rf"{_BEFORE}(?:worker|proc(?:ess)?)[._-]?(\d{{1,7}}){_AFTER}", re.IGNORECASE)
_NODE = re.compile(rf"{_BEFORE}(?:node|host)[._-]?(\d{{1,7}}){_AFTER}", re.IGNORECASE)
_LAUNCH = re.compile(rf"{_BEFORE}(?:attempt|restart)[._-]?(\d{{1,7}}){_AFTER}", re.IGNORECASE)
_TORCHRUN = re.compile(r"(?:^|/)attempt_(\d+)/(\d{1,7})/(?=std(?:out|err)\.log$)")

_TASK = re.compile(r"(?:^|/)\d+(?:_\d+)?_(\d{1,7})_log\.(?:out|err)$")  # submitit: job_task_log

_LOG = r"\.(?:log|txt|out|err|jsonl|ndjson|json|csv)"
_DATE = r"\d{4}-?\d\d-?\d\d(?:[-_T.]?\d\d(?:[-_:]?\d\d){0,2}(?:[._]\d{1,6})?)?"
_ROTATED = (
    re.compile(rf"(?P<log>.+{_LOG})\.(?P<number>\d{{1,4}})"),
    re.compile(rf"(?P<log>.+{_LOG})[.-](?P<date>{_DATE})"),
)
_DATED = re.compile(rf"(?P<head>.+)[.-](?P<date>{_DATE})(?P<log>{_LOG})")
_OUTPUT = re.compile(r"(?:^|(?<=\.))(?:out|stdout)(?=$|\.log$|\.txt$)|(?<=\.o)(?=\d+$)")


@dataclass(frozen=True)
class Rotation:
    """Where a file stands among the parts of a rotated log.

    Attributes:
        log: the name of the log that is being written.
        age: sorts the parts, the oldest first.
        sure: whether the name is that of no other log.
    """

    log: str
    age: tuple[int, str]
    sure: bool = True


def run_of(path: Path, root: Path) -> str:
    """What names the run of a file: its place, without what tells ranks and launches apart."""
    place = _TORCHRUN.sub("/", path.relative_to(root).as_posix()).lstrip("/")
    *above, name = place.split("/")
    folders = [part for part in above if part not in _MEMBER_FOLDERS]
    names = [_MEMBER.sub("", part) for part in folders]
    return "/".join([*(name for name in names if name), _shared_name(name)])


def _shared_name(name: str) -> str:
    """The name of a file without its rank; of `rank_0.log`, which has no other, `rank.log`."""
    if _TASK.search(name):
        return re.sub(r"_\d+(?=_log)", "", name)
    shared = _MEMBER.sub("", name)
    if shared != name and not shared.strip("._-").removeprefix(Path(name).suffix.lstrip(".")):
        return re.sub(r"[._-]?\d+", "", name, count=1)
    return shared.lstrip("._-") if shared != name else shared


def ranks_of(paths: Sequence[Path], root: Path) -> list[int] | None:
    """The rank of each of these files of one run, where all of them tell it; else None.

    Where the ranks of a machine are counted from 0 on each, the machines tell them apart.
    """
    places = [path.relative_to(root).as_posix() for path in paths]
    for pattern in (_GLOBAL, _RANK, _TORCHRUN, _TASK, _PROCESS, _NODE):
        numbers = [_last(pattern, place) for place in places]
        known = [number for number in numbers if number is not None]
        if len(known) == len(places) and len(set(known)) > 1:
            return _across_nodes(places, known)
    return None


def _last(pattern: re.Pattern[str], place: str) -> int | None:
    matches = pattern.findall(place)
    if not matches:
        return None
    last = matches[-1]
    return int(last[-1] if isinstance(last, tuple) else last)


def _across_nodes(places: Sequence[str], numbers: list[int]) -> list[int] | None:
    """Ranks of all machines, from those that are counted on each of them."""
    launches = [tuple(_LAUNCH.findall(place)) for place in places]
    if len({*zip(numbers, launches, strict=True)}) == len(places):
        return numbers
    nodes = [_last(_NODE, place) for place in places]
    if None in nodes or len({*zip(nodes, numbers, launches, strict=True)}) < len(places):
        return None
    order = sorted({node for node in nodes if node is not None})
    width = max(numbers) + 1
    return [
        order.index(node) * width + number
        for node, number in zip(nodes, numbers, strict=True)
        if node is not None
    ]


def checkpoint_of(path: Path) -> int | None:
    """The step of the checkpoint that a file lies in; None where it lies in none."""
    name = path.parent.name
    word = name.removeprefix("checkpoint-")
    return int(word) if word != name and word.isdecimal() else None


def rotation_of(name: str) -> Rotation | None:
    """The log that a file is a part of, if it is named like one that was rotated away."""
    for suffix in compression.SUFFIXES:
        name = name.removesuffix(suffix)
    for pattern in _ROTATED:
        if match := pattern.fullmatch(name):
            found = match.groupdict()
            if number := found.get("number"):
                return Rotation(found["log"], (-int(number), "")) if int(number) else None
            return Rotation(found["log"], (0, _digits(found["date"])))
    if match := _DATED.fullmatch(name):
        return Rotation(match["head"] + match["log"], (0, _digits(match["date"])), sure=False)
    return None


def _digits(date: str) -> str:
    return re.sub(r"\D", "", date)


def errors_beside(name: str) -> str | None:
    """The name that the error output has beside a file of output: `run.err` beside `run.out`."""
    if not _OUTPUT.search(name):
        return None
    if name.startswith(("stdout", "out.")):
        return name.replace("stdout", "stderr", 1) if "stdout" in name else "err" + name[3:]
    beside = re.sub(r"\.o(?=\d+$)", ".e", name)
    if beside == name:
        beside = re.sub(r"\.(std)?out(?=$|\.log$|\.txt$)", _error_suffix, name)
    return beside if beside != name else None


def _error_suffix(match: re.Match[str]) -> str:
    return ".stderr" if match[1] else ".err"
