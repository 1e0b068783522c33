"""`rlprobe record COMMAND`: run it unchanged, record what it does and how it ends.

The launcher records under rank -1 of the attempt. Inside the command, Python processes find
`integrations/autoattach` on their path and record themselves; where none does, the launcher records
what the output tells.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlprobe import environment
from rlprobe.errors import UsageError
from rlprobe.importers.console.ending import REPORT_OF_LAUNCHER
from rlprobe.integrations import autoattach
from rlprobe.launcher import children, streams
from rlprobe.launcher.messages import OutputMessages
from rlprobe.launcher.output import Lines, OutputRows
from rlprobe.recorder import failure, launch
from rlprobe.recorder.recorder import Recorder
from rlprobe.store import manifest
from rlprobe.store.recording import Recording

_HALTING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
_FORWARDED = (*_HALTING, signal.SIGUSR1, signal.SIGUSR2)
_BY_TERMINAL = {signal.SIGINT, signal.SIGQUIT}  # a terminal sends these to the whole group
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_SECRET = re.compile(r"(?i)(token|secret|password|passwd|api[-_]?key)")


def run(command: Sequence[str], run_dir: Path | None = None) -> tuple[int, Path | None]:
    """Run a command and record it; its exit code, and the run directory if it was started.

    The exit code is 128 + n where signal n killed it, 127 or 126 where it could not be started.

    Raises:
        UsageError: there is no command.
        InputError: the run directory cannot be written.
    """
    if not command:
        raise UsageError(
            "Couldn't record nothing", hint="Give the command: rlprobe record python train.py"
        )
    code = _startable(command[0])
    if code:
        return code, None
    with _caught_signals() as signals, tempfile.TemporaryDirectory(prefix="rlprobe-") as status:
        launcher = Launcher(command, run_dir or default_run_dir(command), Path(status))
        return launcher.run(signals), launcher.recorder.run_dir


def default_run_dir(command: Sequence[str], parent: Path = Path("runs")) -> Path:
    """A new directory `runs/<command name>-<time>`."""
    base = f"{command_name(command)}-{time.strftime('%Y%m%d-%H%M%S')}"
    for name in (base, *(f"{base}-{number}" for number in range(2, 1000))):
        with contextlib.suppress(FileExistsError):
            (parent / name).mkdir(parents=True)
            return parent / name
    return parent / f"{base}-{uuid.uuid4().hex[:8]}"


def command_name(command: Sequence[str]) -> str:
    """What a person would call the command: the script, the module, or the program."""
    scripts = [word for word in command if word.endswith(".py") and not word.startswith("-")]
    modules = [after for word, after in itertools.pairwise(command) if word == "-m"]
    name = Path(scripts[0]).stem if scripts else ""
    name = name or (modules[0].rpartition(".")[2] if modules else Path(command[0]).name)
    return re.sub(r"[^\w.-]+", "_", name)[:64].strip("._-") or "command"


def _startable(program: str) -> int:
    """0, or the exit code a shell would give for a program that is not there."""
    if shutil.which(program):
        return 0
    path = Path(program)
    there = "/" in program and path.exists()
    reason = "not found"
    if there:
        reason = "is a directory" if path.is_dir() else "not executable"
    say(f"Couldn't start '{program}': {reason}")
    return _NOT_EXECUTABLE if there else _NOT_FOUND


def say(text: str) -> None:
    """A line for people, on standard error."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"rlprobe: {text}\n")
        sys.stderr.flush()


@contextlib.contextmanager
def _caught_signals() -> Iterator[int]:
    """Signals become bytes in a pipe, whose reading end this is; ignored ones stay ignored.

    Holding signals back and waiting for them would need every thread of the process to hold them,
    and libraries start threads when they are imported.
    """
    wanted = [number for number in _FORWARDED if signal.getsignal(number) is not signal.SIG_IGN]
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    handlers = {
        number: signal.signal(number, lambda *_: None)
        for number in (*wanted, signal.SIGCHLD, signal.SIGWINCH)
    }
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


@dataclass(frozen=True, slots=True)
class Ending:
    """How the command ended.

    Attributes:
        code: what a shell would report.
        killed_by: the signal that killed it.
        halted_by: the signal that somebody sent us to end it.
    """

    code: int
    killed_by: signal.Signals | None
    halted_by: signal.Signals | None


class Launcher:
    """One run of one command."""

    def __init__(self, command: Sequence[str], run_dir: Path, status: Path) -> None:
        self.command = list(command)
        self.status = status
        self.environment = self._environment(run_dir.absolute())
        self.recorder = Recorder(
            run_dir,
            rank=manifest.LAUNCHER_RANK,
            launch=launch.place(self.environment).launch,
            signals=False,
        )
        self._said = False
        self._attached = False
        self._framework = ""
        self.rows = OutputRows(self._record_row, self._wants_rows)
        self.messages = OutputMessages(self._record_message, self._inside)
        self.lines = Lines(self._see)

    def _environment(self, run_dir: Path) -> dict[str, str]:
        path = os.environ.get("PYTHONPATH")
        return {
            **os.environ,
            environment.RUN: str(run_dir),
            environment.LAUNCH: uuid.uuid4().hex,
            environment.STATUS: str(self.status),
            "PYTHONPATH": os.pathsep.join([str(autoattach.FOLDER), *([path] if path else [])]),
        }

    def run(self, signals: int) -> int:
        """Run the command to its end; its exit code."""
        shown = shlex.join(_without_secrets(self.command))
        self.recorder.describe(config={"command": shown})
        self.recorder.event("run_started", shown, command=shown, cwd=str(Path.cwd()))
        self.recorder.flush()
        try:
            child = streams.start(self.command, self.environment, self.lines.feed)
        except OSError as error:
            return self._not_started(error)
        ending = _wait(child, signals)
        child.drain()
        if child.ends_mid_line():
            sys.stderr.write("\n")
        try:
            self._finish(ending)
        except Exception as error:  # whatever it is, the command's own end comes first
            say(f"Couldn't record how it ended: {type(error).__name__}: {error}")
        return ending.code

    def _finish(self, ending: Ending) -> None:
        tail = self.lines.finish()
        self.rows.finish()
        self.messages.finish()
        self._say_what_is_recorded()
        self._record_end(ending, tail)
        say(f"recorded in {self._where()}")

    def _not_started(self, error: OSError) -> int:
        reason = error.strerror or str(error)
        say(f"Couldn't start '{self.command[0]}': {reason}")
        code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
        self.recorder.event("crash", f"could not be started: {reason}", exit_code=code)
        self.recorder.close("crashed")
        return code

    # --- what the output tells -------------------------------------------------------------------

    def _see(self, line: str) -> None:
        self.rows.see(line)
        self.messages.see(line, self.rows.step)

    def _inside(self) -> bool:
        """Whether a process of the command records itself."""
        return self._attached or children.attached(self.status)

    def _record_message(
        self, kind: str, message: str, step: int | None, data: dict[str, Any]
    ) -> None:
        self.recorder.event(kind, message, step=step, **data)

    def _wants_rows(self) -> bool:
        """Whether nobody records from the inside."""
        if self._attached:
            return False
        self._attached = children.attached(self.status) or self._has_ranks()
        if not self._attached:
            self._say_what_is_recorded()
        return not self._attached

    def _has_ranks(self) -> bool:
        """Whether a process of this attempt records into the directory, on whatever machine."""
        run_dir = self.recorder.run_dir
        members = manifest.processes(run_dir, manifest.latest_attempt(run_dir))
        return any(member.rank >= 0 for member in members)

    def _record_row(self, step: int, row: dict[str, float]) -> None:
        if self.rows.framework != self._framework:
            self._framework = self.rows.framework
            self.recorder.describe(framework=self._framework)
        self.recorder.step(step, **row)

    def _say_what_is_recorded(self) -> None:
        """Say once that nobody records from the inside, and why."""
        if self._said or self._attached or children.attached(self.status):
            return
        self._said = True
        why, remedy = children.why_outside(self.status)
        say(f"{why}; recording what the output tells{remedy}")

    def _where(self) -> str:
        """The run directory, and those of further trainers of the same process."""
        places = [str(self.recorder.run_dir), *children.run_dirs(self.status)]
        unique = dict.fromkeys(_shortest(place) for place in places)
        return ", ".join(unique)

    # --- how it ended ----------------------------------------------------------------------------

    def _last_step(self) -> int | None:
        """The last step that anybody recorded in this attempt."""
        with contextlib.suppress(Exception):
            self.recorder.flush()
            return Recording(self.recorder.run_dir).info.attempts[-1].last_step
        return None

    def _record_end(self, ending: Ending, tail: list[str]) -> None:
        step = None if ending.code == 0 else self._last_step()
        if ending.halted_by is not None:
            self.recorder.event(
                "halted",
                f"got {ending.halted_by.name}",
                step=step,
                signal=int(ending.halted_by),
                exit_code=ending.code,
            )
            self.recorder.close("halted")
            return
        if ending.code == 0:
            self.recorder.close("completed")
            return
        data = explain(ending, tail)
        message = data.get("line") or f"exit code {ending.code}"
        self.recorder.event("crash", message, step=step, **data)
        self.recorder.close("killed" if ending.killed_by else "crashed")


def explain(ending: Ending, tail: list[str]) -> dict[str, Any]:
    """What is known of a failure from outside: exit code, signal, last lines, what they mean."""
    name = ending.killed_by.name if ending.killed_by else None
    own_words = [line for line in tail if not REPORT_OF_LAUNCHER.search(line)]
    data = {"exit_code": ending.code, "signal": name, **failure.event_data(tail, own_words)}
    if name is None or data.get("kind", "exception") not in {"exception", "interrupted"}:
        return data
    meaning = f"the command was killed by {name}"
    if ending.killed_by == signal.SIGKILL:
        meaning += "; out of memory, a job limit, or somebody's kill -9"
    remedy = "look into the machine's log (dmesg, the job scheduler) at the time of the end"
    return data | {"kind": "killed", "meaning": meaning, "remedy": remedy, "line": meaning}


def _wait(child: streams.Child, signals: int) -> Ending:
    """Wait for the command, and pass on the signals that we get."""
    halted: signal.Signals | None = None
    while True:
        number = signal.Signals(os.read(signals, 1)[0])
        if number == signal.SIGCHLD:
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                return _ending(status, halted)
        elif number == signal.SIGWINCH:
            child.resize()
        else:
            halted = number if number in _HALTING else halted
            if not (number in _BY_TERMINAL and _in_foreground()):
                os.kill(child.pid, number)


def _in_foreground() -> bool:
    """Whether our terminal's keys reach us, and so the command in the same process group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _ending(status: int, halted: signal.Signals | None) -> Ending:
    code = os.waitstatus_to_exitcode(status)
    killed = signal.Signals(-code) if code < 0 else None
    if killed == signal.SIGINT and halted is None:
        halted = killed  # the terminal told the command alone
    return Ending(code if code >= 0 else 128 - code, killed, halted)


def _without_secrets(command: Sequence[str]) -> list[str]:
    """The command line with the values of tokens and passwords left out."""
    shown: list[str] = []
    hide_next = False
    for word in command:
        name, equals, _ = word.partition("=")
        if hide_next:
            shown.append("***")
        elif equals and _SECRET.search(name):
            shown.append(f"{name}=***")
        else:
            shown.append(word)
        hide_next = not equals and word.startswith("-") and bool(_SECRET.search(word))
    return shown


def _shortest(place: str) -> str:
    """Relative to the working directory where that is below it."""
    path = Path(place)
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return place
