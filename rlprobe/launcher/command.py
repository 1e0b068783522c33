"""`rlprobe record COMMAND`: run it unchanged, record what it does and how it ends.

The launcher records under rank -1 of the attempt. Inside the command, Python processes find
`integrations/autoattach` on their path and record themselves; where none does, the launcher records
what the output tells.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlprobe import environment, redaction
from rlprobe.errors import RlprobeError, UsageError
from rlprobe.launcher import account, children, handed_down, settled, signals, streams
from rlprobe.launcher.ending import Ending, explain, name_of
from rlprobe.launcher.intake import Intake
from rlprobe.launcher.limit import within
from rlprobe.launcher.messages import OutputMessages
from rlprobe.launcher.output import Lines, OutputRows
from rlprobe.launcher.run_dirs import default_run_dir
from rlprobe.launcher.spools import Spools
from rlprobe.launcher.unrecorded import Unrecorded
from rlprobe.numbers import plural
from rlprobe.recorder import claim, launch
from rlprobe.recorder.recorder import Recorder
from rlprobe.store import manifest
from rlprobe.store.occupancy import Applicant
from rlprobe.store.recording import Recording

_DISK_SECONDS = 20.0  # for a disk that hangs: then the command runs unrecorded
_PASS_SECONDS = 30.0  # for whoever is slow to read the last of the output
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


def run(
    command: Sequence[str],
    run_dir: Path | None = None,
    *,
    group: str | None = None,
    say_every: float | None = None,
) -> tuple[int, list[Path]]:
    """Run a command and record it; its exit code, and the run directories if it was recorded.

    There is one directory, and one more beside it for each further training of the command.

    The exit code is 128 + n where signal n killed it, 127 or 126 where it could not be started.
    Where nothing can be recorded (a full disk, a directory that cannot be written) that is said,
    and the command runs all the same.

    Args:
        group: who may read the recording besides its owner.
        say_every: seconds after which it is said, again and again, what has been recorded.

    Raises:
        UsageError: there is no command.
    """
    if not command:
        raise UsageError(
            "Couldn't record nothing", hint="Give the command: rlprobe record python train.py"
        )
    streams.reserve_closed()
    code = _startable(command[0])
    if code:
        return code, []
    with signals.caught() as arrivals, _status_folder() as status:
        launcher = Launcher(command, run_dir, status, group)
        if say_every is not None and launcher.recorder.run_dir is not None:
            account.Meanwhile(say_every, launcher.recorder.run_dir, say).start()
        code, place = launcher.run(arrivals), launcher.recorder.run_dir
        return code, [] if place is None else [place, *children.beside(status, place)]


@contextlib.contextmanager
def _status_folder() -> Iterator[Path]:
    """Where processes of the command leave word; no folder where none can be made."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="rlprobe-", ignore_cleanup_errors=True)
    except OSError:
        yield Path(os.devnull)
        return
    with folder as name:
        yield Path(name)


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
    write_error(f"rlprobe: {text}\n")


def write_error(text: str) -> None:
    """Write to standard error, if there is one."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(text)
        sys.stderr.flush()


class Launcher:
    """One run of one command.

    Args:
        run_dir: None for a new one below `runs`.
        status: where Python processes of the command leave word.
        group: who may read the recording besides its owner.
    """

    def __init__(
        self, command: Sequence[str], run_dir: Path | None, status: Path, group: str | None = None
    ) -> None:
        self.command = list(command)
        self.status = status
        self.place = launch.place()
        self.recorder: Recorder | Unrecorded
        self.environment = handed_down.inherited()
        try:
            self.recorder, self.environment = within(
                _DISK_SECONDS, lambda: self._open(run_dir, group), lambda it: it[0].close("halted")
            )
        except Exception as error:  # a full disk, no directory, none of ours: the command runs
            self.recorder = Unrecorded(_reason(error))
        self.spools: Spools | None = None
        self._is_said = False
        self._attached = False
        self._framework = ""
        self.messages = OutputMessages(self._record_message, self._inside)
        self.rows = OutputRows(self._record_row, self._wants_rows, self.messages)
        self.lines = Lines(self.rows.read)

    def _open(self, run_dir: Path | None, group: str | None) -> tuple[Recorder, dict[str, str]]:
        """The recorder, and the environment in which the command finds the recording."""
        place = (run_dir or default_run_dir(self.command)).absolute()
        rank = manifest.LAUNCHER_RANK - self.place.rank
        inside = handed_down.environ(place, self.status, self.place)
        name = launch.place(inside).launch
        free = claim.free_place(place, Applicant(name, rank, ""))
        if free.why:
            say(free.why)
        inside[environment.RUN] = str(free.run_dir)
        manifest.prepare(free.run_dir, group)
        recorder = Recorder(free.run_dir, rank=rank, launch=name, signals=False)
        if free.why:
            recorder.describe(notes=[free.why])
        return recorder, inside

    def run(self, arrivals: int) -> int:
        """Run the command to its end; its exit code.

        Args:
            arrivals: where signals arrive as bytes.
        """
        outputs = self._begin()
        try:
            return self._run(outputs, arrivals)
        finally:
            outputs.close()

    def _run(self, outputs: streams.Outputs, arrivals: int) -> int:
        try:
            pid = streams.start(self.command, self.environment, outputs)
        except OSError as error:
            return self._not_started(error)
        if not isinstance(self.recorder, Unrecorded):
            self.spools = Spools(self.status, self.environment)
            self.spools.start()
        intake = Intake(outputs.copies, self.lines) if outputs.copies else None
        if intake is not None:
            intake.start()
        ending = signals.Watch(pid, arrivals, outputs).wait()
        try:
            self._finish_output(intake)
            within(_PASS_SECONDS, lambda: self._finish(ending, intake), lambda _: None)
        except Exception as error:  # whatever it is, the command's own end comes first
            say(f"Couldn't record how it ended: {str(error) or type(error).__name__}")
        return ending.code

    def _begin(self) -> streams.Outputs:
        if isinstance(self.recorder, Unrecorded):
            say(f"{self.recorder.reason}; the command runs unrecorded")
            return streams.Outputs()
        shown = shlex.join(_without_secrets(self.command))
        self.recorder.describe(config={"command": shown})
        self.recorder.event("run_started", shown, command=shown, cwd=_working_directory())
        self.recorder.flush()
        outputs = streams.connect()
        if outputs.unread:
            say(f"Couldn't read the command's output: {outputs.unread}; it passes by unread")
        return outputs

    def _finish_output(self, intake: Intake | None) -> None:
        if intake is not None:
            intake.finish(_PASS_SECONDS)
            if intake.ends_mid_line():
                write_error("\n")

    def _finish(self, ending: Ending, intake: Intake | None) -> None:
        tail: list[str] = []
        if intake is None or not intake.is_alive():
            tail = self.lines.finish()
            self.rows.finish()
            self.messages.finish()
        if isinstance(self.recorder, Unrecorded):
            return
        self._finish_spools()
        self._say_what_is_recorded()
        self._settle()
        if intake is not None:
            self._describe_reading(self._say_what_is_missing(intake))
        self._record_end(ending, tail)
        self._say_what_was_recorded()

    def _settle(self) -> None:
        """What a scan of the output has takes the place of what was recorded as it came."""
        run = self.rows.settled
        inside = self._inside() or self._has_ranks()
        if run is None or inside or isinstance(self.recorder, Unrecorded):
            return
        try:
            settled.settle(self.recorder, manifest.LAUNCHER_RANK - self.place.rank, run)
        except Exception as error:  # what came is recorded
            say(f"Couldn't go through the output again: {str(error) or type(error).__name__}")

    def _say_what_is_missing(self, intake: Intake) -> list[str]:
        """Say what of the output was not read or not passed on; the same for the recording."""
        notes = []
        if intake.failure:
            notes.append(f"Couldn't read all of the output: {intake.failure}")
            say(notes[-1])
        for missed, what in (
            (self.lines.unread, "came faster than it could be read: not looked at"),
            (intake.unwritten, "could not be written where it was to appear: no room there"),
        ):
            if missed.size:
                notes.append(f"{missed} {what}")
                say(notes[-1])
                counts = {"bytes": missed.size, "lines": missed.lines}
                self.recorder.event("output_skipped", notes[-1], **counts)
        return notes

    def _describe_reading(self, notes: list[str]) -> None:
        """What a scan of the same output would say of how it was read."""
        run_dir = self.recorder.run_dir
        if self.rows.has_rows:
            unread = [dataclasses.asdict(item) for item in self.rows.unread()]
            self.recorder.describe(unread=unread)
            notes = [*self.rows.notes(), *notes]
        if notes and run_dir is not None:
            earlier = manifest.read(run_dir).get("notes")
            before = earlier if isinstance(earlier, list) else []
            self.recorder.describe(notes=list(dict.fromkeys([*map(str, before), *notes])))

    def _not_started(self, error: OSError) -> int:
        reason = error.strerror or str(error)
        say(f"Couldn't start '{self.command[0]}': {reason}")
        code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
        self.recorder.event("crash", f"could not be started: {reason}", exit_code=code)
        self.recorder.close("crashed")
        return code

    # --- what the output tells -------------------------------------------------------------------

    def _inside(self) -> bool:
        """Whether a process of the command records itself."""
        run_dir = self.recorder.run_dir
        return self._attached or (run_dir is not None and children.attached(self.status, run_dir))

    def _record_message(
        self, kind: str, message: str, step: int | None, data: dict[str, Any]
    ) -> None:
        self.recorder.event(kind, message, step=step, **data)

    def _wants_rows(self) -> bool:
        """Whether nobody records from the inside."""
        if self._attached:
            return False
        self._attached = self.place.rank > 0 or self._inside() or self._has_ranks()
        if not self._attached:
            self._say_what_is_recorded()
        return not self._attached

    def _has_ranks(self) -> bool:
        """Whether a process of this attempt records into the directory, on whatever machine."""
        run_dir = self.recorder.run_dir
        if run_dir is None:
            return False
        members = manifest.processes(run_dir, manifest.latest_attempt(run_dir))
        return any(member.rank >= 0 for member in members)

    def _record_row(self, step: int, row: dict[str, float]) -> None:
        if self.rows.framework != self._framework:
            self._framework = self.rows.framework
            self.recorder.describe(framework=self._framework)
        self.recorder.step(step, **row)

    def _say_what_is_recorded(self) -> None:
        """Say once that nobody records from the inside, and why."""
        if self._is_said or self._inside():
            return
        self._is_said = True
        why, remedy = children.why_outside(self.status, self.command)
        say(f"{why}; recording what the output tells{remedy}")

    def _finish_spools(self) -> None:
        """Record what processes without a recorder have left."""
        if self.spools is None:
            return
        self.spools.finish()
        if self.spools.failure:
            say(f"Couldn't record all that processes told: {self.spools.failure}")
        if self.spools.lost:
            say(f"{plural(self.spools.lost, 'row')} of processes were lost")

    def _say_what_was_recorded(self) -> None:
        """One line for each recording: the launcher's, and those of further runs beside it."""
        place = str(self.recorder.run_dir)
        calls = children.sources(self.status)
        for run_dir, told in (self.spools.sources if self.spools else {}).items():
            calls.setdefault(run_dir, []).extend(told)
        if self.rows.has_rows:
            calls.setdefault(place, []).append(account.OUTPUT)
        for line in (
            *children.remarks(self.status),
            *account.closing(place, self.status, calls, self.command),
        ):
            say(line)

    # --- how it ended ----------------------------------------------------------------------------

    def _last_step(self) -> int | None:
        """The last step that anybody recorded in this attempt."""
        if self.recorder.run_dir is not None:
            with contextlib.suppress(Exception):
                self.recorder.flush()
                return Recording(self.recorder.run_dir).info.attempts[-1].last_step
        return None

    def _record_end(self, ending: Ending, tail: list[str]) -> None:
        step = None if ending.code == 0 else self._last_step()
        if ending.halted_by is not None:
            self.recorder.event(
                "halted",
                f"got {name_of(ending.halted_by)}",
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


def _reason(error: Exception) -> str:
    if isinstance(error, RlprobeError):
        return str(error)
    return f"Couldn't record: {getattr(error, 'strerror', None) or error or type(error).__name__}"


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return "(deleted)"


def _without_secrets(command: Sequence[str]) -> list[str]:
    """The command line as it is recorded."""
    return redaction.words(command)
