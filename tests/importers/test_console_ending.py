"""Console logs: how a run ended, told by what comes after its last row."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlprobe.importers import open_runs
from rlprobe.values import Event

ROWS = [f"{{'loss': {0.5 - 0.01 * i:.3f}, 'grad_norm': 0.4, 'epoch': 0.{i:02}}}" for i in range(12)]
OUT_OF_MEMORY = """Traceback (most recent call last):
  File "train.py", line 9, in <module>
    trainer.train()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.12 GiB."""
WATCHDOG = (
    "[rank1]:[E424 01:11:21.16 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=4, OpType=BROADCAST) ran for 1800010 milliseconds"
)
ELASTIC = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>"""
SANDBOX = """Traceback (most recent call last):
  File "/tmp/tmpab12/solution.py", line 3, in <module>
ValueError: invalid literal for int() with base 10: ''"""


def ending(tmp_path: Path, *after: str, rows: list[str] = ROWS) -> Event | None:
    path = tmp_path / "console.log"
    path.write_text("\n".join([*rows, *after]) + "\n", encoding="utf-8")
    (run,) = open_runs(path)
    ends = [event for event in run.events if event.kind in ("crash", "halted")]
    assert len(ends) <= 1
    return ends[0] if ends else None


@pytest.mark.parametrize(
    ("after", "kind"),
    [
        (OUT_OF_MEMORY, "cuda_out_of_memory"),
        (f"{OUT_OF_MEMORY}\n{ELASTIC}", "cuda_out_of_memory"),
        (WATCHDOG, "collective_timeout"),
        (f"{WATCHDOG}\n{WATCHDOG}", "collective_timeout"),
        ("RuntimeError: probability tensor contains either `inf`, `nan`", "nan_probabilities"),
        ("Traceback (most recent call last):\n  File 'a.py'\nKeyboardInterrupt", "interrupted"),
        (
            "(main pid=7) Traceback (most recent call last):\n(main pid=7) KeyError: 'x'",
            "exception",
        ),
        ("run.sh: line 3: 12345 Killed                  python train.py", "killed"),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0", "host_out_of_memory"),
        ("srun: error: n7: task 2: Out Of Memory", "host_out_of_memory"),
        ("  Reason: OOMKilled\n  Exit Code: 137", "host_out_of_memory"),
        ("srun: error: n7: task 2: Killed", "killed"),
        (
            "[launch.py:322:sigkill_handler] ['python', 'a.py'] exits with return code = -9",
            "killed",
        ),
        ("[4.1] NVRM: Xid (PCI:0000:0f:00): 79, pid=5, GPU is lost", "device_fault"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "device_fault"),
        ("RuntimeError: [gloo] Timed out waiting 9ms for recv operation", "collective_timeout"),
        ("ray.exceptions.OutOfMemoryError: the node running low on memory.", "host_out_of_memory"),
        ("Exception: Current loss scale already at minimum - cannot", "loss_scale_exhausted"),
        ("3: Traceback (most recent call last):\n3:   File 'a.py'\n3: KeyError: 'x'", "exception"),
        (
            "[1,2]<stderr>:Traceback (most recent call last):\n[1,2]<stderr>:KeyError: 1",
            "exception",
        ),
    ],
)
def test_what_killed_the_run_is_told_at_its_last_step(
    tmp_path: Path, after: str, kind: str
) -> None:
    event = ending(tmp_path, after)
    assert event is not None
    assert (event.kind, event.step, event.data["kind"]) == ("crash", 12, kind)
    assert event.message in after


def test_the_exception_of_ranks_that_print_at_once_is_the_one_that_is_quoted(
    tmp_path: Path,
) -> None:
    lines = ["Traceback (most recent call last):", '  File "a.py", line 9', "TypeError: no size"]
    both = [f"[rank{rank}]: {line}" for line in lines for rank in (0, 1)]
    event = ending(
        tmp_path, *both, "Traceback (most recent call last):", "    sys.exit(main())", ELASTIC
    )
    assert event is not None
    assert event.message == "TypeError: no size"


def test_a_traceback_that_is_cut_off_is_an_end(tmp_path: Path) -> None:
    event = ending(tmp_path, "Traceback (most recent call last):", '  File "train.py", line 9')
    assert event is not None
    assert event.step == 12


def test_the_end_of_a_jobs_time_is_no_crash(tmp_path: Path) -> None:
    line = "slurmstepd: error: *** JOB 12 ON node7 CANCELLED AT 2026-01-02 DUE TO TIME LIMIT ***"
    event = ending(tmp_path, line)
    assert event is not None
    assert (event.kind, event.data["signal"]) == ("halted", "SIGTERM")


@pytest.mark.parametrize(
    "after",
    [
        "Training completed. Model saved to out/",
        "UserWarning: the attention mask is not set",
        "wandb: Synced 5 file(s)",
        SANDBOX,
        "\n".join([OUT_OF_MEMORY, *(f"Evaluating prompt number {i}" for i in range(30))]),
        "\n".join(["retrying: CUDA out of memory", *(f"prompt number {i}" for i in range(30))]),
        OUT_OF_MEMORY + "\n}",
    ],
)
def test_what_is_no_end_is_not_told(tmp_path: Path, after: str) -> None:
    assert ending(tmp_path, after) is None


def test_a_traceback_after_which_rows_go_on_is_no_end(tmp_path: Path) -> None:
    assert ending(tmp_path, rows=[*ROWS[:6], OUT_OF_MEMORY, *ROWS[6:]]) is None
    assert ending(tmp_path, rows=[*ROWS[:11], OUT_OF_MEMORY, ROWS[11]]) is None


def test_a_progress_bar_that_moves_on_is_no_end(tmp_path: Path) -> None:
    bar = " {0}%|███ | {0}/100 [00:10<00:20, 1.00it/s]"
    rows = [f"{bar.format(i + 1)}\n{row}" for i, row in enumerate(ROWS)]
    assert ending(tmp_path, OUT_OF_MEMORY, bar.format(14), rows=rows) is None
    stopped = ending(tmp_path, OUT_OF_MEMORY, bar.format(12), rows=rows)
    assert stopped is not None
    assert stopped.step == 12


def test_what_is_quoted_is_short_and_printable(tmp_path: Path) -> None:
    event = ending(tmp_path, "RuntimeError: \x1b[31mred\x1b[0m \x07\u202e" + "x" * 5_000)
    assert event is not None
    assert len(event.message) <= 300
    assert event.message.isprintable()
    assert all(len(line) <= 300 for line in event.data["tail"])
