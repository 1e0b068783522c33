"""How a run ended, as a scan shows it: exceptions with their message and frames, signals, life."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rlprobe import Recorder
from rlprobe.findings import Pulse
from rlprobe.report.life import alive

Screen = Callable[..., str]
FAILING = """
import sys
from rlprobe import Recorder


def score(step):
    raise ValueError(f"reward function failed on prompt {step}:\\nexpected a float, got 'n/a'")


def train(recorder):
    for step in range(1, 40):
        recorder.step(step, loss=1 / step, grad_norm=1.0)
        if step == 30:
            score(step)


with Recorder(sys.argv[1]) as recorder:
    train(recorder)
"""
PRINTING = (
    FAILING.replace("recorder.step(step, loss=", "print(dict(step=step, loss=")
    .replace("grad_norm=1.0)", "grad_norm=1.0))")
    .replace("with Recorder(sys.argv[1]) as recorder:\n    train(recorder)", "train(None)")
)
SLEEPING = """
import sys, time
from rlprobe import Recorder
recorder = Recorder(sys.argv[1])
for step in range(1, 31):
    recorder.step(step, loss=1 / step, grad_norm=1.0)
    time.sleep(0.05)
recorder.flush()
print("ready", flush=True)
time.sleep(60)
"""
SAID = "ValueError: reward function failed on prompt 30: expected a float, got 'n/a'"


def flat(screen: str) -> str:
    return " ".join(screen.split())


def script(folder: Path, code: str) -> Path:
    path = folder / "train.py"
    path.write_text(code)
    return path


def recorded(run_dir: Path, path: Path) -> str:
    """What `rlprobe record` and the script write."""
    command = [sys.executable, "-m", "rlprobe", "record", "--run", str(run_dir)]
    done = subprocess.run(
        [*command, sys.executable, str(path), str(run_dir)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


# --- exceptions ----------------------------------------------------------------------------------


def test_the_message_and_the_last_frames_of_an_exception(tmp_path: Path, screen: Screen) -> None:
    path, run_dir = script(tmp_path, FAILING), tmp_path / "run"
    subprocess.run([sys.executable, str(path), str(run_dir)], capture_output=True, check=False)
    seen = flat(screen("scan", run_dir))
    assert f"The run died (exception) after step 30: {SAID}. Last frames: " in seen, seen
    frames = seen.partition("Last frames: ")[2].partition(". ")[0].split(", ")
    place = path.parent.name
    assert frames == [
        f"{place}/train.py:18 in <module>",
        f"{place}/train.py:14 in train",
        f"{place}/train.py:7 in score",
    ]


@pytest.mark.parametrize("code", [FAILING, PRINTING], ids=["inside and outside", "outside"])
def test_under_record_it_is_said_once(code: str, tmp_path: Path, screen: Screen) -> None:
    run_dir = tmp_path / "run"
    recorded(run_dir, script(tmp_path, code))
    seen = flat(screen("scan", run_dir))
    assert seen.count("reward function failed on prompt 30") == 1, seen
    assert seen.count("train.py:7 in score") == 1
    assert "an exception ended the run" not in seen
    assert "CRASH" not in seen.replace("CRITICAL CRASH", "", 1)


def test_a_log_with_a_traceback(tmp_path: Path, screen: Screen) -> None:
    path = script(tmp_path, PRINTING.replace("\\n", " "))
    log = tmp_path / "train.log"
    with log.open("w") as file:
        subprocess.run([sys.executable, "-u", str(path)], stdout=file, stderr=file, check=False)
    log.write_text(log.read_text().replace(str(tmp_path), "/home/me/project"))
    seen = flat(screen("scan", log))
    assert f"{SAID}. Last frames: " in seen, seen
    assert "project/train.py:7 in score." in seen


def test_frames_are_told_below_a_message_of_many_lines(tmp_path: Path, screen: Screen) -> None:
    code = FAILING.replace("got 'n/a'", "got" + "\\n  a line" * 50)
    path, run_dir = script(tmp_path, code), tmp_path / "run"
    subprocess.run([sys.executable, str(path), str(run_dir)], capture_output=True, check=False)
    assert "train.py:7 in score." in flat(screen("scan", run_dir))


# --- signals -------------------------------------------------------------------------------------

SIGNALS = {
    signal.SIGTERM: ("WARNING CRASH (halted)", "The run was stopped after step 30: got SIGTERM."),
    signal.SIGHUP: ("WARNING CRASH (halted)", "The run was stopped after step 30: got SIGHUP."),
    signal.SIGINT: ("info CRASH", "The run was stopped after step 30: got SIGINT."),
    signal.SIGKILL: (
        "CRITICAL CRASH (vanished)",
        "The run stopped recording after step 30 without an end and its process is gone: kill -9,",
    ),
}


def start(*command: object) -> subprocess.Popen[str]:
    job = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert job.stdout is not None
    for line in job.stdout:
        if line == "ready\n":
            break
    return job


@pytest.mark.parametrize("number", SIGNALS)
def test_signals_in_the_middle(number: signal.Signals, tmp_path: Path, screen: Screen) -> None:
    job = start(sys.executable, script(tmp_path, SLEEPING), tmp_path / "run")
    job.send_signal(number)
    job.communicate()
    seen = flat(screen("scan", tmp_path / "run"))
    for words in SIGNALS[number]:
        assert words in seen, seen


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_to_record(number: signal.Signals, tmp_path: Path, screen: Screen) -> None:
    record = (sys.executable, "-m", "rlprobe", "record", "--run", tmp_path / "run")
    job = start(*record, sys.executable, script(tmp_path, SLEEPING), tmp_path / "run")
    job.send_signal(number)
    job.communicate()
    seen = flat(screen("scan", tmp_path / "run"))
    for words in SIGNALS[number]:
        assert words in seen, seen


def test_a_killed_command_is_said_once(tmp_path: Path, screen: Screen) -> None:
    code = SLEEPING.replace("time.sleep(60)", "import os; os.kill(os.getpid(), 9)")
    recorded(tmp_path / "run", script(tmp_path, code))
    seen = flat(screen("scan", tmp_path / "run"))
    assert "CRITICAL CRASH (killed)" in seen
    assert seen.count("the command was killed by SIGKILL") == 1, seen


def test_what_explain_says_of_signals(screen: Screen) -> None:
    page = flat(screen("explain", "CRASH"))
    assert "info where the launch was stopped from the keyboard" in page
    assert "but a warning if by a scheduler's signal" in page
    assert "`kill -9`" in page


# --- runs that have not ended --------------------------------------------------------------------

HOUR = 3600.0


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Look at it so much later."""
    now = time.time() + seconds
    monkeypatch.setattr("time.time", lambda: now)


def test_a_running_run_says_so(
    tmp_path: Path, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = start(sys.executable, script(tmp_path, SLEEPING), tmp_path / "run")
    try:
        seen = screen("scan", tmp_path / "run").splitlines()
        assert re.search(r"1 attempt   running, last row \d+ s ago$", flat_head(seen)), seen
        shown = screen("show", tmp_path / "run", "--step", 30)
        assert re.search(r"running, last row \d+ s ago", shown), shown
        assert "running, last row" in screen("scan", tmp_path / "run", "--format", "markdown")
        later(monkeypatch, 2.5 * HOUR)
        hung = flat_head(screen("scan", tmp_path / "run").splitlines())
        assert re.search(r"running, last row 2 h ago, one every 0.05\d* s before$", hung), hung
    finally:
        job.kill()
        job.communicate()
    seen = screen("scan", tmp_path / "run").splitlines()
    assert "last row" not in flat_head(seen)


def flat_head(lines: list[str]) -> str:
    """What stands above the verdict."""
    until = next(i for i, line in enumerate(lines) if not line or line.startswith(("PASS", "NOT")))
    return "   ".join(line.strip() for line in lines[:until])


def test_a_run_without_a_row_yet(
    tmp_path: Path, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tmp_path / "run")
    recorder.flush()
    later(monkeypatch, 630)
    assert "running for 10 min, no rows yet" in screen("scan", tmp_path / "run")
    recorder.close()
    assert "running" not in screen("scan", tmp_path / "run")


def test_a_run_on_another_machine(
    tmp_path: Path, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("socket.gethostname", lambda: "elsewhere")
        recorder = Recorder(tmp_path / "run")
        recorder.step(1, loss=1.0)
        recorder.flush()
    later(monkeypatch, 26 * HOUR)
    assert "no end recorded, last row 26 h ago" in flat(screen("scan", tmp_path / "run"))
    recorder.close()


@pytest.mark.parametrize(
    ("pace", "silent", "words"),
    [
        (30.0, 12.0, "last row 12 s ago"),
        (30.0, 290.0, "last row 4 min ago"),
        (30.0, 310.0, "last row 5 min ago, one every 30 s before"),
        (0.25, 59.0, "last row 59 s ago"),
        (0.25, 61.0, "last row 61 s ago, one every 0.25 s before"),
        (None, 9e5, "last row 10 days ago"),
        (1e-6, 61.0, "last row 61 s ago"),
        (30.0, -5.0, "last row 0 s ago"),
    ],
)
def test_the_words(pace: float | None, silent: float, words: str) -> None:
    pulse = Pulse("running", 0.0, 1000.0, pace)
    assert alive(pulse, 1000.0 + silent) == f"running, {words}"
