"""Signals reach the command once, whoever they are sent to; stopping and windows are as before."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from rlprobe.launcher.ending import name_of
from rlprobe.store.recording import Recording
from tests.launcher.processes import (
    RECORD,
    ended,
    in_terminal,
    python,
    read_until,
    start,
    until,
)

# Counts one signal. Another one, the marker, is answered; the second one ends it.
COUNTING = """
import os, signal, sys
number, marker = int(sys.argv[1]), int(sys.argv[2])
reader, writer = os.pipe()
os.set_blocking(writer, False)
signal.set_wakeup_fd(writer)  # each signal is a byte: those of real time come as often as sent
for each in (number, marker):
    signal.signal(each, lambda *_: None)
print("ready")
came = b""
while came.count(marker) < 2:
    came += os.read(reader, 1)
    if came.count(marker) == 1 and came[-1] == marker:
        print("marked")
print(came.count(number))
sys.exit(7)
"""
MARKER = signal.SIGVTALRM
REAL_TIME = signal.SIGRTMIN + 3


def counting(tmp_path: Path, number: int, first: str = "") -> subprocess.Popen[bytes]:
    process = start(
        tmp_path / "run",
        *python(f"{first}\n{COUNTING}", str(int(number)), str(int(MARKER))),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def counted(process: subprocess.Popen[bytes]) -> int:
    """How often the signal came.

    When the second marker comes, what was gathered with the first has been passed on.
    """
    assert process.stdout is not None
    process.send_signal(MARKER)
    assert process.stdout.readline() == b"marked\n"
    process.send_signal(MARKER)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 7
    return int(out)


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCONT, REAL_TIME],
    ids=name_of,
)
def test_a_signal_to_the_whole_group_comes_once(tmp_path: Path, number: int) -> None:
    process = counting(tmp_path, number)
    os.killpg(process.pid, number)
    assert counted(process) == 1


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU, signal.SIGWINCH, REAL_TIME],
    ids=name_of,
)
def test_a_signal_to_the_launcher_alone_is_passed_on_once(tmp_path: Path, number: int) -> None:
    process = counting(tmp_path, number)
    process.send_signal(number)
    assert counted(process) == 1


def test_signals_of_real_time_are_all_passed_on(tmp_path: Path) -> None:
    process = counting(tmp_path, REAL_TIME)
    for _ in range(3):
        process.send_signal(REAL_TIME)
    assert counted(process) == 3


def test_a_command_in_a_group_of_its_own_gets_what_comes_to_ours(tmp_path: Path) -> None:
    process = counting(tmp_path, signal.SIGUSR1, "import os\nos.setpgid(0, 0)")
    os.killpg(process.pid, signal.SIGUSR1)
    assert counted(process) == 1


def test_ignored_signals_stay_ignored(tmp_path: Path) -> None:
    process = start(
        tmp_path / "run",
        *python("print('ready')\ninput()"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    os.killpg(process.pid, signal.SIGHUP)
    process.communicate(b"\n", timeout=30)
    assert process.returncode == 0


def test_stopping_the_launcher_stops_the_command_with_it(tmp_path: Path) -> None:
    process = start(
        tmp_path / "run",
        *python("import os\nprint(os.getpid())\ninput()\nraise SystemExit(6)"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=False,
        process_group=0,
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.send_signal(signal.SIGTSTP)
    pid, status = os.waitpid(process.pid, os.WUNTRACED)
    assert pid
    assert os.WIFSTOPPED(status)
    until(lambda: state_of(child) == "T")
    process.send_signal(signal.SIGCONT)
    until(lambda: state_of(child) == "S")
    process.communicate(b"\n", timeout=30)
    assert process.returncode == 6


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_command_that_stops_itself_stops_its_job(tmp_path: Path) -> None:
    command = [*RECORD, "--run", str(tmp_path / "run"), "--", "sh", "-c", "kill -STOP $$; exit 6"]
    pid, terminal = in_terminal(*command)
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.killpg(pid, signal.SIGCONT)
    assert ended(pid, terminal) == 6


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_the_size_of_the_window_follows(tmp_path: Path) -> None:
    code = """
    import os, signal, time
    signal.signal(signal.SIGWINCH, lambda *_: None)
    print("ready")
    while os.get_terminal_size(1).columns != 71:
        time.sleep(0.01)
    print("resized")
    """
    command = [*RECORD, "--run", str(tmp_path / "run"), "--", *python(code)]
    pid, terminal = in_terminal(*command)
    shown = read_until(terminal, b"ready")
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 71, 0, 0))
    read_until(terminal, b"resized", shown)
    assert ended(pid, terminal) == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_launcher_that_is_killed_leaves_the_terminal_to_the_command(tmp_path: Path) -> None:
    go = tmp_path / "go"
    code = """
    import os, pathlib, sys, time
    print("launcher", os.getppid(), os.isatty(1))
    while not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.01)
    print("alive", os.isatty(1))
    """
    # A shell above the launcher leads the session: its death would hang up the terminal.
    command = ["sh", "-c", '"$@"; read line', "sh", *RECORD, "--run", str(tmp_path / "run"), "--"]
    pid, terminal = in_terminal(*command, *python(code, str(go)))
    shown = read_until(terminal, b"True\r\n")
    os.kill(int(shown.split(b"launcher ")[1].split()[0]), signal.SIGKILL)
    go.touch()
    read_until(terminal, b"alive True", shown)
    os.write(terminal, b"\n")
    os.waitpid(pid, 0)
    os.close(terminal)


def test_how_it_was_halted_is_recorded(tmp_path: Path) -> None:
    process = start(
        tmp_path / "run",
        "sh",
        "-c",
        "echo ready; exec sleep 50",
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    (event,) = [e for e in Recording(tmp_path / "run").events if e.kind == "halted"]
    assert event.data["signal"] == signal.SIGTERM
