"""What the command does is what it does without us, however the launcher or the command ends."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlprobe.store.recording import Recording
from tests.launcher.processes import ENVIRONMENT, RECORD, python, start, until

# Prints a line, waits for a file, prints the rest, and says that it lived.
PATIENT = """
import pathlib, sys, time
go, done = map(pathlib.Path, sys.argv[1:])
print("step 1 | loss 0.5")
while not go.exists():
    time.sleep(0.01)
for step in range(2, 50):
    print(f"step {step} | loss 0.5")
print("last", file=sys.stderr)
done.touch()
"""


def shell(script: str, *, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run a line of shell with `$RECORD` for the words that record."""
    record = " ".join(f"'{word}'" for word in RECORD)
    return subprocess.run(
        ["bash", "-c", f'record() {{ {record} "$@"; }}; {script}'],
        capture_output=True,
        cwd=cwd,
        env=ENVIRONMENT,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("where", ["file", "pipe"])
def test_training_goes_on_where_the_launcher_is_killed(tmp_path: Path, where: str) -> None:
    go, done, log = tmp_path / "go", tmp_path / "done", tmp_path / "log"
    with log.open("wb") as file:
        reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file)
    assert reader.stdin is not None
    out = reader.stdin if where == "pipe" else log.open("ab")
    process = start(tmp_path / "run", *python(PATIENT, str(go), str(done)), stdout=out, stderr=out)
    out.close()
    reader.stdin.close()
    until(lambda: b"step 1 " in log.read_bytes())
    process.kill()
    process.wait(timeout=30)
    go.touch()
    until(done.exists)
    until(lambda: b"last" in log.read_bytes())
    reader.wait(timeout=30)
    lines = log.read_text().splitlines()
    assert [line for line in lines if "step" in line] == [
        f"step {step} | loss 0.5" for step in range(1, 50)
    ]


def test_a_background_process_outlives_the_launcher_and_prints(tmp_path: Path) -> None:
    log, done, go = tmp_path / "log", tmp_path / "done", tmp_path / "go"
    script = (
        f"(while [ ! -e {go} ]; do sleep 0.02; done; echo late || exit; touch {done}) & echo on"
    )
    with log.open("wb") as out:
        process = start(tmp_path / "run", "bash", "-c", script, stdout=out, stderr=out)
    assert process.wait(timeout=30) == 0  # the command has ended, though its pipe is still open
    assert Recording(tmp_path / "run").info.attempts[-1].ended == "completed"
    assert log.read_bytes().startswith(b"on\n")
    go.touch()
    until(done.exists)
    until(lambda: log.read_bytes().endswith(b"late\n"))


def test_all_of_the_output_is_there_when_the_launcher_ends(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as out:
        code = "import os; os.write(1, b'x' * 60_000 + b'the end\\n')"
        process = start(tmp_path / "run", *python(code), stdout=out, stderr=subprocess.DEVNULL)
    assert process.wait(timeout=30) == 0
    assert log.read_bytes() == b"x" * 60_000 + b"the end\n"


@pytest.mark.parametrize("number", [signal.SIGRTMIN + 6, signal.SIGSEGV, signal.SIGKILL])
def test_the_exit_code_tells_the_signal(tmp_path: Path, number: int) -> None:
    done = shell(f"record --run {tmp_path}/run -- sh -c 'kill -{int(number)} $$'; echo $?")
    assert done.stdout.decode().strip() == str(128 + number)
    (crash,) = [e for e in Recording(tmp_path / "run").events if e.kind == "crash"]
    assert crash.data["signal"] == ("SIGRTMIN+6" if number > 31 else signal.Signals(number).name)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_the_commands_too(tmp_path: Path, closed: str) -> None:
    code = """
    import os, sys
    state = []
    for number in (0, 1, 2):
        try:
            os.fstat(number)
            state.append("open")
        except OSError:
            state.append("closed")
    open(sys.argv[1], "w").write(" ".join(state))
    os._exit(5)
    """
    there, plain = tmp_path / "there", tmp_path / "plain"
    command = python(code)
    words = " ".join(f"'{word}'" for word in command)
    done = shell(f"exec 7>&1; record --run {tmp_path}/run -- {words} {there} {closed}; echo $? >&7")
    assert done.stdout.decode().splitlines()[-1] == "5"
    shell(f"{words} {plain} {closed}")
    assert there.read_text() == plain.read_text()


def test_a_run_directory_that_cannot_be_made_costs_the_recording_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = shell(f"record --run {tmp_path}/file/run -- sh -c 'echo trained; exit 4'; echo $?")
    assert done.stdout == b"trained\n4\n"
    assert b"runs unrecorded" in done.stderr
    assert b"Couldn't record into" in done.stderr
    assert b"internal error" not in done.stderr


def test_what_was_not_recorded_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = shell(f"record --fail-on critical --run {tmp_path}/file/run -- true; echo $?")
    assert done.stdout == b"3\n"


def test_a_full_disk_costs_the_recording_alone(tmp_path: Path) -> None:
    # A process that may write no byte to a file: what a full disk does to each write.
    command = [*RECORD, "--run", str(tmp_path / "run"), "--", "sh", "-c", "echo trained; exit 4"]
    done = subprocess.run(
        command,
        capture_output=True,
        env={**ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (4, b"trained\n")
    assert b"unrecorded" in done.stderr
    assert b"internal error" not in done.stderr


def test_a_deleted_working_directory(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    record = f"record --run {tmp_path}/run -- sh -c 'echo trained; exit 4'"
    done = shell(f"rmdir {gone}; {record}; echo $?", cwd=gone)
    assert done.stdout == b"trained\n4\n"
    assert b"recorded in" in done.stderr
    assert b"internal error" not in done.stderr
    done = shell("record -- sh -c 'echo trained; exit 4'; echo $?", cwd=tmp_path)
    assert done.stdout == b"trained\n4\n"


def test_few_file_descriptors(tmp_path: Path) -> None:
    done = shell(
        f"ulimit -n 14; record --run {tmp_path}/run -- sh -c 'echo trained; exit 4'; echo $?"
    )
    assert done.stdout == b"trained\n4\n"


def test_a_full_place_for_the_output_costs_the_output_alone(tmp_path: Path) -> None:
    done = shell(f"record --run {tmp_path}/run -- sh -c 'echo hello; exit 5' > /dev/full; echo $?")
    assert done.stdout == b"5\n"
    assert b"no room" in done.stderr
    (event,) = [e for e in Recording(tmp_path / "run").events if e.kind == "output_skipped"]
    assert event.data == {"bytes": 6, "lines": 1}
    assert "no room" in " ".join(Recording(tmp_path / "run").info.notes)


def test_a_reader_that_goes_away_is_noticed_by_the_command(tmp_path: Path) -> None:
    code = "i = 0\nwhile True: print(i); i += 1"
    words = " ".join(f"'{word}'" for word in python(code))
    done = shell(f"record --run {tmp_path}/run -- {words} | head -1; echo ${{PIPESTATUS[0]}}")
    assert done.stdout == b"0\n1\n"


def test_a_writer_notices_that_the_command_reads_no_more(tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"exec 0</dev/null; until [ -e {go} ]; do sleep 0.02; done"
    record = " ".join(f"'{word}'" for word in RECORD)  # a function would be a reader, too
    done = shell(f"(yes; touch {go}) | {record} --run {tmp_path}/run -- sh -c '{script}'; echo $?")
    assert done.stdout == b"0\n"


def test_signals_that_every_python_ignores_are_the_commands_own(tmp_path: Path) -> None:
    code = "grep SigIgn /proc/self/status"
    recorded = shell(f"record --run {tmp_path}/run -- {code}")
    assert recorded.stdout == shell(code).stdout


def test_an_empty_environment_stays_empty(tmp_path: Path) -> None:
    words = " ".join(f"'{word}'" for word in RECORD)
    done = shell(f"env -i PATH=/usr/bin:/bin {words} --run {tmp_path}/run -- env")
    names = {line.split("=")[0] for line in done.stdout.decode().splitlines()}
    assert "LC_CTYPE" not in names
    assert {name for name in names if not name.startswith("RLPROBE_")} == {"PATH", "PYTHONPATH"}


def test_a_helper_that_records_elsewhere_does_not_end_the_reading(tmp_path: Path) -> None:
    helper = tmp_path / "help.py"
    helper.write_text(
        "from rlprobe import Recorder\nwith Recorder('helper') as r: r.step(0, loss=1.0)\n"
    )
    code = """
    import subprocess, sys
    for step in range(20):
        print({"step": step, "loss": 1.0 / (step + 1), "reward": 0.1})
        if step == 5:
            subprocess.run([sys.executable, sys.argv[1]], check=True)
    """
    process = start(
        tmp_path / "run",
        *python(code, str(helper)),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    _, err = process.communicate(timeout=60)
    assert Recording(tmp_path / "run").steps.step.tolist() == list(range(20))
    assert Recording(tmp_path / "helper").steps.step.tolist() == [0]
    assert b"helper" in err


def test_a_launcher_for_each_rank_is_one_attempt(tmp_path: Path) -> None:
    code = "for step in range(1, 4): print('step', step, '| loss 0.5 | grad_norm 1.0')"
    processes = [
        start(
            tmp_path / "run",
            *python(code),
            env={**ENVIRONMENT, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "3"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(3)
    ]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    recording = Recording(tmp_path / "run")
    (attempt,) = recording.info.attempts
    assert attempt.ended == "completed"
    assert recording.steps.step.tolist() == [1, 2, 3]  # once, from the first rank's output


def test_where_nobody_can_pass_output_on_it_goes_straight_through(tmp_path: Path) -> None:
    code = "import sys; sys.executable = '/nowhere'; from rlprobe.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "record", "--run", str(tmp_path / "run"), "--"]
    done = subprocess.run(
        [*command, "sh", "-c", "echo trained; exit 4"],
        capture_output=True,
        env=ENVIRONMENT,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (4, b"trained\n")
    assert b"passes by unread" in done.stderr


def test_who_kills_all_that_bears_our_name_does_not_kill_the_training(tmp_path: Path) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    process = start(
        tmp_path / "run",
        *python(PATIENT, str(go), str(done)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    process.stdout.readline()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    lines = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    (relay,) = [line for line in lines if b"output-relay" in line]
    assert b"rlprobe" not in relay.removeprefix(sys.executable.encode())
    process.kill()
    go.touch()
    out, _ = process.communicate(timeout=30)
    assert done.exists()
    assert out.count(b"\n") == 49


def test_no_process_of_ours_is_left(tmp_path: Path) -> None:
    process = start(tmp_path / "run", "true", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process.wait(timeout=30)
    until(lambda: not _of_group(process.pid))


def _of_group(group: int) -> list[int]:
    """Processes of a session: the sentry is one until it notices that we are gone."""
    there = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - names
        try:
            if name.isdigit() and os.getsid(int(name)) == group:
                there.append(int(name))
        except ProcessLookupError:
            continue
    return there
