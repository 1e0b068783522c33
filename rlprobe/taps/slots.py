"""Which directory each run of a launch is recorded into, agreed upon in the status folder.

The first run of a launch is recorded where the launcher says, the next ones beside that: `runs/x`,
`runs/x-2`, …. Each has a name; the link `trainer-2` in the status folder holds the name of the
second. Who comes with the same name belongs to the same run: another rank, or a restart.
"""

from __future__ import annotations

import os
from typing import List

from . import variables

_MOST = 1000
_own: List[str] = []  # names of this process's runs, where there is no status folder


def slot_of(name: str, *, alone: bool = False) -> int:
    """Which of this launch's runs this is, from 1.

    Args:
        alone: whether no other living process can belong to it: there are no ranks. Then a second
            process of that name is a restart if the first is dead, and else a run of its own.
    """
    status = os.environ.get(variables.STATUS)
    number = 1
    while status and number < _MOST:
        answer = _claim(os.path.join(status, "trainer-%d" % number), name, alone=alone)
        if answer is None:  # another machine: the folder is not there
            break
        if answer:
            return number
        number += 1
    if name not in _own:
        _own.append(name)
    return _own.index(name) + 1


def leave(number: int) -> None:
    """A run was none after all: the next one takes its slot."""
    status = os.environ.get(variables.STATUS)
    if status:
        try:
            os.unlink(os.path.join(status, "trainer-%d" % number))
        except OSError:
            pass
    del _own[number - 1 :]


def _claim(link: str, name: str, *, alone: bool) -> bool | None:
    """Whether a link is ours, or has become it; None where no link can be made."""
    own = "%s@%d" % (name, os.getpid()) if alone else name
    try:
        os.symlink(own, link)  # exclusive, and never seen without its content
    except FileExistsError:
        there = os.readlink(link)
        return there == own or (alone and _is_left_by_the_dead(there, name, link, own))
    except OSError:
        return None
    return True


def _is_left_by_the_dead(there: str, name: str, link: str, own: str) -> bool:
    """Whether a process of that name had it, and has died: then it is ours."""
    known, _, number = there.rpartition("@")
    if known != name or not number.isdigit() or _lives(int(number)):
        return False
    new = "%s.%d" % (link, os.getpid())
    try:
        os.symlink(own, new)
        os.replace(new, link)
    except OSError:
        return False
    return True


def _lives(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def directory(run_dir: str, number: int) -> str:
    """Where the n-th run of a launch into this directory is recorded."""
    return run_dir if number == 1 else "%s-%d" % (run_dir.rstrip("/"), number)
