"""`rlprobe record -- COMMAND` around small commands: output, exit codes, signals, what is told."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlprobe.store.recording import Recording
from rlprobe.values import Event
from tests.launcher.processes import (
    ENVIRONMENT,
    RECORD,
    ended,
    in_terminal,
    read_until,
)


@dataclass
class Ran:
    """A finished `rlprobe record`."""

    code: int
    out: bytes
    err: bytes
    run_dir: Path

    @property
    def recording(self) -> Recording:
        return Recording(self.run_dir)

    @property
    def events(self) -> list[Event]:
        return [event for event in self.recording.events if event.rank == -1]

    def event(self, kind: str) -> Event:
        (found,) = [event for event in self.events if event.kind == kind]
        return found

    @property
    def ended(self) -> str:
        return self.recording.info.attempts[-1].ended


Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def record(*command: str, environment: dict[str, str] | None = None) -> Ran:
        run_dir = tmp_path / "run"
        done = subprocess.run(
            [*RECORD, "--run", str(run_dir), "--", *command],
            capture_output=True,
            cwd=tmp_path,
            env={**ENVIRONMENT, **(environment or {})},
            timeout=60,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr, run_dir)

    return record


def python(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


# --- output and exit codes -----------------------------------------------------------------------


def test_output_passes_byte_for_byte(run: Run) -> None:
    code = """
    import os
    payload = bytes(range(256)) * 2000 + b"\\r 10%|#\\r 20%|##" + b"\\xff\\xfe no line end"
    os.write(2, b"\\x1b[31mred\\x1b[0m\\r\\n\\n\\n")
    view = memoryview(payload)
    while view:
        view = view[os.write(1, view):]
    """
    ran = run(*python(code))
    assert ran.code == 0
    assert ran.out == bytes(range(256)) * 2000 + b"\r 10%|#\r 20%|##\xff\xfe no line end"
    assert ran.err.startswith(b"\x1b[31mred\x1b[0m\r\n\n\n")


def test_one_file_for_both_keeps_the_order(tmp_path: Path) -> None:
    code = "import os\nfor i in range(500): os.write(1 + i % 2, b'%d\\n' % i)"
    target = tmp_path / "log"
    with target.open("wb") as file:
        command = [*RECORD, "--run", str(tmp_path / "run"), "--", sys.executable, "-c", code]
        subprocess.run(command, stdout=file, stderr=file, env=ENVIRONMENT, check=True, timeout=60)
    lines = [line for line in target.read_text().splitlines() if line.isdigit()]
    assert lines == [str(number) for number in range(500)]


def test_input_reaches_the_command(tmp_path: Path) -> None:
    command = [*RECORD, "--run", str(tmp_path / "run"), "--", "cat"]
    done = subprocess.run(
        command, input=b"a\0b\n", capture_output=True, env=ENVIRONMENT, check=True, timeout=60
    )
    assert done.stdout == b"a\0b\n"


def test_a_clean_end(run: Run) -> None:
    ran = run("true")
    assert ran.code == 0
    assert ran.ended == "completed"
    assert ran.event("run_ended")
    assert f"recorded in {ran.run_dir.name}".encode() in ran.err


@pytest.mark.parametrize("code", [1, 3, 255])
def test_exit_codes_are_the_commands_own(run: Run, code: int) -> None:
    ran = run("bash", "-c", f"echo last words; exit {code}")
    assert ran.code == code
    assert ran.ended == "crashed"
    assert ran.event("crash").data["exit_code"] == code
    assert ran.event("crash").data["tail"] == ["last words"]


def test_killed_by_a_signal(run: Run) -> None:
    ran = run("bash", "-c", "kill -9 $$")
    assert ran.code == 137
    assert ran.ended == "killed"
    crash = ran.event("crash")
    assert crash.data["signal"] == "SIGKILL"
    assert "memory" in crash.data["meaning"]


def test_the_failure_is_explained(run: Run) -> None:
    code = "raise MemoryError('Cannot allocate memory')"
    crash = run(*python(code)).event("crash")
    assert crash.data["kind"] == "host_out_of_memory"
    assert crash.data["meaning"]
    assert crash.data["remedy"]
    assert crash.data["tail"][-1] == "MemoryError: Cannot allocate memory"


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("no-such-command", 127, "not found"),
        ("./no-such-file", 127, "not found"),
        ("./data", 126, "not executable"),
        ("./folder", 126, "is a directory"),
        ("./badscript", 127, "No such file"),
    ],
)
def test_what_cannot_be_started(
    run: Run, tmp_path: Path, name: str, code: int, reason: str
) -> None:
    (tmp_path / "data").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "badscript").write_text("#!/no/such/interpreter\n")
    (tmp_path / "badscript").chmod(0o755)
    ran = run(name)
    assert ran.code == code
    assert f"Couldn't start '{name}'".encode() in ran.err
    assert reason.encode() in ran.err
    assert b"Traceback" not in ran.err


@pytest.mark.parametrize("words", [[], ["--fail-on", "sometimes", "--", "touch", "ran"]])
def test_usage_errors_are_found_before_the_command_runs(tmp_path: Path, words: list[str]) -> None:
    command = [*RECORD, *words]
    done = subprocess.run(
        command, capture_output=True, env=ENVIRONMENT, cwd=tmp_path, check=False, timeout=60
    )
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []


# --- signals -------------------------------------------------------------------------------------


def _started(tmp_path: Path, *command: str) -> subprocess.Popen[bytes]:
    """Start a recorded command in a session of its own; returns when it says it is ready."""
    process = subprocess.Popen(
        [*RECORD, "--run", str(tmp_path / "run"), "--", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_signals_reach_the_command_and_halt_the_run(tmp_path: Path, number: signal.Signals) -> None:
    code = f"""
    import signal, sys, time
    signal.signal({int(number)}, lambda *_: (print("got it", flush=True), sys.exit(7)))
    print("ready", flush=True)
    time.sleep(50)
    """
    process = _started(tmp_path, *python(code))
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 7
    assert out == b"got it\n"
    ran = Ran(7, out, b"", tmp_path / "run")
    assert ran.ended == "halted"
    assert ran.event("halted").data["signal"] == number


def test_a_command_that_dies_of_the_signal(tmp_path: Path) -> None:
    process = _started(tmp_path, "bash", "-c", "echo ready; exec sleep 50")
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert Ran(143, b"", b"", tmp_path / "run").ended == "halted"


def test_user_signals_do_not_halt(tmp_path: Path) -> None:
    code = """
    import signal, time
    signal.signal(signal.SIGUSR1, lambda *_: print("usr1", flush=True))
    print("ready", flush=True)
    time.sleep(1)
    """
    process = _started(tmp_path, *python(code))
    process.send_signal(signal.SIGUSR1)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, b"usr1\n")
    assert Ran(0, out, b"", tmp_path / "run").ended == "completed"


# --- terminals -----------------------------------------------------------------------------------


def test_a_terminal_stays_a_terminal(tmp_path: Path) -> None:
    code = """
    import os
    size = os.get_terminal_size(1)
    print(os.isatty(1), os.isatty(2), size.columns, size.lines)
    """
    ours, theirs = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
    process = subprocess.Popen(
        [*RECORD, "--run", str(tmp_path / "run"), "--", *python(code)],
        stdout=theirs,
        stderr=theirs,
        env=ENVIRONMENT,
    )
    os.close(theirs)
    process.wait(timeout=60)
    shown = os.read(ours, 65536)
    os.close(ours)
    assert shown.startswith(b"True True 101 33\r\n")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_control_c_in_a_terminal_reaches_the_command_once(tmp_path: Path) -> None:
    code = """
    import signal, sys, time
    got = []
    signal.signal(signal.SIGINT, lambda *_: got.append(1))
    print("ready", flush=True)
    end = time.monotonic() + 20
    while not got and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.5)
    print("interrupts:", len(got), flush=True)
    """
    command = [*RECORD, "--run", str(tmp_path / "run"), "--", *python(code)]
    pid, terminal = in_terminal(*command)
    shown = read_until(terminal, b"ready")
    os.write(terminal, b"\x03")
    shown = read_until(terminal, rb"interrupts: \d", shown)
    assert b"interrupts: 1" in shown
    assert ended(pid, terminal) == 0
    assert Ran(0, shown, b"", tmp_path / "run").ended == "halted"


# --- what the output tells -----------------------------------------------------------------------


def test_rows_of_a_command_that_is_no_python(run: Run) -> None:
    script = 'for i in 1 2 3; do echo "step $i | loss 0.$i | grad_norm nan"; done'
    ran = run("bash", "-c", script)
    assert ran.err.count(b"recording what the output tells") == 1
    assert b"starts no Python" in ran.err
    steps = ran.recording.steps
    assert steps.step.tolist() == [1, 2, 3]
    assert {"loss", "grad_norm"} <= set(steps.names)


def test_rows_are_stored_in_the_units_of_the_vocabulary(run: Run) -> None:
    megatron = " iteration 10/ 100 | elapsed time per iteration (ms): 1234.0 | lm loss: 1.5E+00 |"
    recording = run("echo", megatron).recording
    assert recording.info.framework == "megatron"
    series = recording.steps.series("step_time")
    assert series is not None
    assert series.values.tolist() == [1.234]


def test_a_python_that_has_no_rlprobe(run: Run) -> None:
    code = "print({'loss': 0.5, 'grad_norm': 1.0, 'learning_rate': 1e-6})"
    ran = run(sys.executable, "-S", "-c", code)  # -S: no site-packages, and no sitecustomize
    assert ran.recording.steps.step.tolist() == [1]
    assert ran.err.count(b"recording what the output tells") == 1


def test_python_processes_leave_their_status_and_nothing_else(run: Run) -> None:
    code = """
    import json, os, pathlib, sys
    (mine,) = pathlib.Path(os.environ["RLPROBE_STATUS"]).glob("python-*.json")
    print(json.dumps([json.loads(mine.read_text()), sorted(sys.modules), sys.path]))
    """
    ran = run(*python(code))
    status, modules, path = json.loads(ran.out)
    assert status == {"executable": sys.executable, "rlprobe": status["rlprobe"], "error": None}
    assert status["rlprobe"]
    assert not [name for name in modules if name.split(".")[0] in {"rlprobe", "numpy", "wrapt"}]
    assert not [entry for entry in path if entry.endswith("autoattach")]
    assert b"no Hugging Face Trainer" in ran.err


def test_the_next_sitecustomize_runs_too(run: Run, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = __file__\n")
    code = "import sitecustomize; print(theirs, sitecustomize.__file__)"
    ran = run(*python(code), environment={"PYTHONPATH": str(own)})
    assert ran.out.decode().split() == [str(own / "sitecustomize.py")] * 2


def test_a_sitecustomize_that_fails_fails_as_before(run: Run, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("raise ValueError('theirs')\n")
    ran = run(*python("print('alive')"), environment={"PYTHONPATH": str(own)})
    assert ran.out == b"alive\n"
    assert b"Error in sitecustomize" in ran.err
    assert b"no Hugging Face Trainer" in ran.err  # ours was set up all the same


def _fake_trainer(tmp_path: Path) -> str:
    package = tmp_path / "fake" / "transformers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "trainer.py").write_text(
        "class Trainer:\n    def train(self):\n        print('trained')\n        return 5\n"
    )
    return str(package.parent)


def test_a_trainer_that_cannot_be_attached_trains_all_the_same(run: Run, tmp_path: Path) -> None:
    code = "from transformers.trainer import Trainer; print(Trainer().train())"
    ran = run(*python(code), environment={"PYTHONPATH": _fake_trainer(tmp_path)})
    assert ran.out == b"trained\n5\n"
    assert ran.code == 0
    assert b"cannot record inside" in ran.err


def test_rows_are_dropped_once_somebody_records_from_the_inside(run: Run) -> None:
    code = """
    import os, pathlib
    print("step 1 | loss 0.5", flush=True)
    import time; time.sleep(1.2)  # longer than lines are gathered
    mark = pathlib.Path(os.environ["RLPROBE_STATUS"]) / "attached-1"
    mark.write_text(os.environ["RLPROBE_RUN"])
    print("step 2 | loss 0.5", flush=True)
    """
    assert run(*python(code)).recording.steps.step.tolist() == [1]


def test_the_command_line_is_recorded_without_secrets(run: Run) -> None:
    ran = run("true", "--hf-token", "abc", "--api_key=def", "--steps", "3")
    command = ran.recording.info.settings["command"]
    assert command == "true --hf-token '***' '--api_key=***' --steps 3"
