"""What frameworks say beside metrics: read line by line, placed between rows, counted."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from rlprobe import schema
from rlprobe.importers import open_runs
from rlprobe.importers.console.messages import Message, Messages
from rlprobe.scan.engine import scan
from rlprobe.store.run import Run
from rlprobe.values import Event
from tests.importers.reading import points, read

MESSAGES = Messages()
ENGINE = (
    "INFO 03-05 08:{:02}:00 [loggers.py:127] Engine {:03}: Avg prompt throughput: 12.5 tokens/s, "
    "Avg generation throughput: 810.0 tokens/s, Running: 64 reqs, Waiting: {} reqs, "
    "GPU KV cache usage: {:.1f}%, Prefix cache hit rate: 3.0%"
)
WATCHDOG = (
    "[rank{0}]:[E606 09:09:08.17 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum={1}, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, "
    "Timeout(ms)=600000) ran for 600017 milliseconds before timing out."
)
STATE = (
    "[rank{0}]:[E606 09:09:08.21 ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID 0(default_pg) Rank "
    "{0}]  failure detected by watchdog at work sequence id: {1} PG status: last enqueued work: "
    "{2}, last completed work: {3}"
)
DUMP = (
    "[rank{0}]:[E606 09:09:09.02 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank "
    "{0}] Received a dump signal due to a collective timeout from  rank 0 and we will try our best "
    "to dump the debug info. Last enqueued NCCL work: {1}, last completed NCCL work: {1}.This is"
)
NAN = (
    "RuntimeError: Rank 11, node n-7, device 3, iteration 512: Unexpected result nan "
    "(message='found NaN in local grad norm for bucket #2 in backward pass before')"
)
CANCELLED = "slurmstepd: error: *** JOB 771 ON n4 CANCELLED AT 2026-02-03T04:05:06 DUE TO {} ***"
RECLAIMED = (
    "WARNING 03-05 08:30:01 [scheduler.py:1800] Sequence group 9f is preempted by "
    "PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. This can affect "
    "it. total_num_cumulative_preemption=51"
)
PPO = "/v/trl/trainer/ppo_trainer.py:1201: UserWarning: KL divergence is starting to become"

# line, name of the message, rank, step, some of its data
SAID: list[tuple[str, str, int | None, int | None, dict[str, Any]]] = [
    (WATCHDOG.format(5, 77), "collective_timeout", 5, None, {"seq": 77, "op": "ALLREDUCE"}),
    (
        "[E ProcessGroupNCCL.cpp:456] [Rank 2] Watchdog caught collective operation timeout: "
        "WorkNCCL(OpType=BROADCAST, TensorShape=[3, 4], Timeout(ms)=1800000) ran for 1804404 "
        "milliseconds before timing out.",
        "collective_timeout",
        2,
        None,
        {"op": "BROADCAST", "ran_ms": 1804404},
    ),
    (STATE.format(9, 8, 31, -1), "collective_state", 9, None, {"enqueued": 31, "completed": -1}),
    (DUMP.format(6, 41), "collective_state", 6, None, {"enqueued": 41, "group": 0}),
    (
        "[rank3]: RuntimeError: [/g/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
        "900000ms for send operation to complete",
        "gloo_timeout",
        3,
        None,
        {"timeout_ms": 900000, "op": "send"},
    ),
    (NAN, "rejected_gradient", 11, None, {"iteration": 512, "device": 3, "source": "gradient"}),
    (
        "RuntimeError: Rank 0, node n, device 0, iteration 7: Unexpected result nan "
        "(message='found NaN in local forward loss calculation')",
        "rejected_loss",
        0,
        None,
        {"source": "loss"},
    ),
    (
        "Unexpected result nan on rank 4 at iteration #90 invocation #1 (message='loss is NaN')",
        "rejected_result",
        4,
        None,
        {"iteration": 90},
    ),
    (
        "AssertionError: Rank 6: found NaN in local grad norm in backward pass before data-parallel"
        " communication collective. Device: 6, node: gpu-3",
        "nan_gradient",
        6,
        None,
        {"device": 6, "node": "gpu-3"},
    ),
    (
        "[Rank 6] (after 20 iterations) memory (MB) | allocated: 512.0 | max allocated: 2048.0 | "
        "reserved: 3072.0 | max reserved: 4096.0",
        "memory_report",
        6,
        20,
        {"allocated_mib": 512.0},
    ),
    ("WARN: rank 3 grad_norm is not finite: nan", "skipped_gradient", 3, None, {}),
    ("***WARNING*** Bad grad_norm detected (grad_norm=inf)", "bad_gradient", None, None, {}),
    (
        "  3%|2    | 12/400 [00:09<04:50,  1.33it/s][2026-02-03 04:05:06,001] [INFO] "
        "[loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted "
        "loss scale: 512, reducing to 256",
        "overflow",
        0,
        None,
        {"before": 512, "after": 256},
    ),
    (
        "[deepspeed] fp16 dynamic loss scale overflow! Skipping step. Attempted loss scale: "
        "8192.0, reducing to 4096.0",
        "overflow",
        None,
        None,
        {"after": 4096.0},
    ),
    (
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 512, but hysteresis is "
        "2. Reducing hysteresis to 1",
        "tolerated_overflow",
        0,
        None,
        {"hysteresis": 2},
    ),
    (
        "[1,3]<stderr>:Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 64",
        "apex_overflow",
        3,
        None,
        {"after": 64},
    ),
    (ENGINE.format(1, 2, 7, 91.25), "engine_statistics", None, None, {"engine": 2, "waiting": 7}),
    (
        "[2026-02-03 04:05:06 DP1 TP0] Decode batch, #running-req: 31, #token: 9000, token usage: "
        "0.83, cuda graph: True, gen throughput (token/s): 900.1, #queue-req: 12,",
        "batch_statistics",
        None,
        None,
        {"usage": 0.83, "waiting": 12},
    ),
    (RECLAIMED, "preempted", None, None, {"total": 51, "mode": "RECOMPUTE"}),
    (
        "[2026-02-03 04:05:06] KV cache pool is full. Retract requests. #retracted_reqs: 3, #new",
        "retracted",
        None,
        None,
        {"requests": 3},
    ),
    (f"{PPO} negative: -3.25 - this might be", "negative_kl", None, None, {"kl": -3.25}),
    ("Saving model checkpoint to out/checkpoint-70", "saving_model", None, 70, {}),
    (
        "[INFO|trainer.py:3503] 2026-02-03 04:05:06,001 >> Saving model checkpoint to /o/run",
        "saving_model",
        None,
        None,
        {"path": "/o/run"},
    ),
    (
        "  successfully saved checkpoint from iteration     900 to /c [ t 1/2, p 1/1 ]",
        "saved_iteration",
        None,
        900,
        {"path": "/c"},
    ),
    (
        "2026-02-03 04:05:06.1 | INFO     | skyrl_train.trainer:save:81 - Successfully saved "
        "checkpoint for global_step_12 to: /c/global_step_12",
        "saved_global_step",
        None,
        12,
        {},
    ),
    ("Saving checkpoint for step 30...", "saving_step", None, 30, {}),
    (
        "(TaskRunner pid=7) local_global_step_folder: /c/global_step_44",
        "saving_folder",
        None,
        44,
        {},
    ),
    (
        "[rank0]:[titan] 2026-02-03 04:05:06,001 - root - INFO - Finished saving the checkpoint "
        "(or staging if async is enabled)in 4.20 seconds.",
        "finished_saving",
        0,
        None,
        {"seconds": 4.2},
    ),
    (
        "Epoch 2, global step 610: 'val_loss' reached 0.410 (best 0.410), saving model to "
        "'/c/epoch=2.ckpt' as top 1",
        "saving_best",
        None,
        610,
        {"best": True},
    ),
    ("Saved model parameters to: /c/model_000300.pt", "saved_parameters", None, 300, {}),
    ("  Continuing training from global step 250", "continuing", None, 250, {}),
    (
        "  successfully loaded checkpoint from /c [ t 1/1, p 1/1 ] at iteration 640",
        "loaded_iteration",
        None,
        640,
        {},
    ),
    ("(main_task pid=9) Setting global step to 44", "setting_step", None, 44, {}),
    (
        "Successfully loaded complete checkpoint state from global_step_12",
        "loaded_global_step",
        None,
        12,
        {},
    ),
    ("Restored all states from the checkpoint at /c/last.ckpt", "restored_all", None, None, {}),
    ("04:05:06 INFO Resuming training from checkpoint step 80", "resuming", None, 80, {}),
    ("Loading the checkpoint at step 20.", "loading_step", None, 20, {}),
    (
        "[default] Worker group FAILED. 2/3 attempts left; will restart worker group",
        "restarting_workers",
        None,
        None,
        {},
    ),
    (CANCELLED.format("TIME LIMIT"), "job_ended", None, None, {"cause": "TIME LIMIT"}),
    (
        "2: slurmstepd: error: *** JOB 771 ON n4 CANCELLED AT 2026-02-03T04:05:06 ***",
        "job_cancelled",
        2,
        None,
        {"job": 771},
    ),
    (
        "Feb 03 04:05:06 n4 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=5, GPU is lost",
        "xid",
        None,
        None,
        {"xid": 79, "device": "PCI:0000:0f:00"},
    ),
    ("NVRM: GPU 0000:0f:00.0: GPU has fallen off the bus.", "off_the_bus", None, None, {}),
    (
        "[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "ecc_error",
        1,
        None,
        {},
    ),
]


def row(step: int) -> str:
    return f"step {step} | loss {2 - 0.01 * step:.3f} | grad_norm 0.5 | reward 0.{30 + step % 7}"


def rows(first: int, last: int) -> list[str]:
    return [row(step) for step in range(first, last + 1)]


def run_of(folder: Path, *lines: str) -> Run:
    return read(folder, "console.log", "\n".join(lines) + "\n")


def of_kind(run: Run, kind: str) -> list[Event]:
    return [event for event in run.events if event.kind == kind]


@pytest.mark.parametrize(("line", "name", "rank", "step", "data"), SAID)
def test_a_line_says_what_its_framework_means(
    line: str, name: str, rank: int | None, step: int | None, data: dict[str, Any]
) -> None:
    message = MESSAGES.see(line)
    assert message is not None
    assert (message.known.name, message.rank, message.step) == (name, rank, step)
    assert data.items() <= message.data.items()


def test_every_message_has_an_example_a_known_event_and_known_metrics() -> None:
    known = {message.name: message for message in schema.messages()}
    assert set(known) == {name for _, name, *_ in SAID}
    assert {message.kind for message in known.values()} <= {"", *schema.event_kinds()}
    for message in known.values():
        assert all(schema.metric(name) for name in message.metrics)
    for line, name, *_ in SAID:
        assert known[name].needle in line


@pytest.mark.parametrize(
    "line",
    [
        f"completion: 'I would say {WATCHDOG.format(1, 2)}'",
        "The trainer prints Saving model checkpoint to out/checkpoint-70 and goes on",
        'print(f"  successfully saved checkpoint from iteration 900 to {path}")',
        "# Saving checkpoint at step 200",
        "Generated answers: ['Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale "
        "to 64.0']",
        '{"a": "slurmstepd: error: *** JOB 7 ON n CANCELLED AT 2026-02-03 DUE TO TIME LIMIT ***"}',
        "| the answer | KV cache pool is full. Retract requests. #retracted_reqs: 3 |",
        "Resuming training from the last checkpoint",
        "Watchdog caught collective operation timeout",
        "loss_scale: 64, the last enqueued work: 7",
    ],
)
def test_text_that_mentions_a_message_is_none(line: str) -> None:
    assert MESSAGES.see(line) is None


@pytest.mark.parametrize("known", schema.messages(), ids=lambda known: known.name)
@pytest.mark.parametrize("filling", ["", "[", "(", "a:", " 1", "- ", "1%|", "Rank 1, ", "x ", "'"])
def test_no_line_takes_long(known: schema.KnownMessage, filling: str) -> None:
    line = (filling * 50_000)[:50_000] + known.needle * 50 + (filling * 50_000)[:50_000]
    started = time.perf_counter()
    MESSAGES.see(line)
    assert time.perf_counter() - started < 0.5


def test_what_is_quoted_is_short_and_printable() -> None:
    message = MESSAGES.see("Saving model checkpoint to /\x1b[31mred\x07\u202e" + "x" * 5_000)
    assert isinstance(message, Message)
    assert len(message.text) <= 300
    assert message.text.isprintable()
    assert all(str(value).isprintable() for value in message.data.values())


# --- numbers ------------------------------------------------------------------------------------


def test_the_use_of_the_cache_belongs_to_the_row_after_it(tmp_path: Path) -> None:
    lines = []
    for step in range(1, 7):
        lines += [ENGINE.format(step, 0, 2 * step, 40 + 8 * step), ENGINE.format(step, 0, 0, 10)]
        lines.append(row(step))
    run = run_of(tmp_path, *lines)
    expected = [(step, (40 + 8 * step) / 100) for step in range(1, 7)]
    assert points(run, "kv_cache_usage") == expected
    assert points(run, "requests_waiting") == [(step, 2 * step) for step in range(1, 7)]
    assert len(points(run, "loss")) == 6


def test_so_it_does_where_rows_have_no_step(tmp_path: Path) -> None:
    lines = []
    for step in range(1, 6):
        lines += [ENGINE.format(step, 0, step, 40 + 8 * step), f"{{'loss': 0.{step}, 'kl': 0.01}}"]
    run = run_of(tmp_path, *lines, ENGINE.format(9, 0, 9, 99.0))
    expected = [(step, (40 + 8 * step) / 100) for step in range(1, 6)]
    assert points(run, "kv_cache_usage") == expected


@pytest.mark.parametrize(
    "prefix",
    [
        "(WorkerDict pid=12, ip=10.0.0.3) ",
        "\x1b[36m(WorkerDict pid=12)\x1b[0m ",
        "(EngineCore_DP0 pid=77) ",
        "[default0]:",
        "Processed prompts:  12%|1         | 12/100 [00:10<01:00,  1.20it/s]",
    ],
)
def test_prefixes_of_workers_and_bars_hide_nothing(tmp_path: Path, prefix: str) -> None:
    run = run_of(tmp_path, *[prefix + ENGINE.format(at, 0, 0, 50 + at) for at in range(4)])
    assert [value for _, value in points(run, "kv_cache_usage")] == [0.5, 0.51, 0.52, 0.53]


def test_messages_in_the_log_of_a_container_are_read(tmp_path: Path) -> None:
    lines = [
        json.dumps({"log": ENGINE.format(at, 0, 0, 50 + at) + "\n", "stream": "stderr"})
        for at in range(4)
    ]
    run = run_of(tmp_path, *lines, '{"log":"done\\n","stream":"stdout"')
    assert [value for _, value in points(run, "kv_cache_usage")] == [0.5, 0.51, 0.52, 0.53]


def test_a_log_of_engines_alone_is_read_round_by_round(tmp_path: Path) -> None:
    uses = [51.0, 62.5, 71.0, 99.0]
    lines = [
        ENGINE.format(at, engine, 0, use - engine)
        for at, use in enumerate(uses)
        for engine in (0, 1)
    ]
    run = run_of(tmp_path, *lines)
    expected = [(step, use / 100) for step, use in enumerate(uses, start=1)]
    assert points(run, "kv_cache_usage") == expected
    assert any("only numbers in messages" in note for note in run.info.notes)


def test_rows_of_a_training_win_over_those_of_messages(tmp_path: Path) -> None:
    lines = [ENGINE.format(at, 0, 0, 50.0) for at in range(5)]
    run = run_of(tmp_path, *lines, *rows(1, 3))
    assert points(run, "kv_cache_usage") == [(1, 0.5)]
    assert [step for step, _ in points(run, "loss")] == [1, 2, 3]


def test_a_negative_kl_is_a_row_only_where_there_is_no_other(tmp_path: Path) -> None:
    warning = f"{PPO} negative: {{}} - this might be"
    run = run_of(tmp_path, warning.format(-2.5), "  warnings.warn(", warning.format(-40.0))
    assert points(run, "kl_mean") == [(1, -2.5), (2, -40.0)]
    run = run_of(tmp_path, row(1), warning.format(-2.5), row(2))
    assert points(run, "kl_mean") == []
    (event,) = of_kind(run, "kl_negative")
    assert (event.step, event.data["kl"]) == (1, -2.5)


# --- places -------------------------------------------------------------------------------------


def test_what_is_said_again_at_a_step_is_one_event_with_a_count(tmp_path: Path) -> None:
    run = run_of(tmp_path, *rows(1, 3), *[RECLAIMED] * 5_000, *rows(4, 5), RECLAIMED, row(6))
    events = of_kind(run, "preemption")
    assert [(event.step, event.data.get("count", 1)) for event in events] == [(3, 5_000), (5, 1)]


def test_events_of_one_message_are_bounded(tmp_path: Path) -> None:
    lines = [line for step in range(1, 3_001) for line in (row(step), RECLAIMED)]
    run = run_of(tmp_path, *lines)
    steps = [event.step for event in of_kind(run, "preemption")]
    assert len(steps) == 2_000
    assert any("1,000 messages between rows are left out" in note for note in run.info.notes)
    assert (steps[0], steps[-1]) == (1, 3_000)


def test_a_checkpoint_has_its_own_step_where_that_is_a_step_of_the_rows(tmp_path: Path) -> None:
    lines = [
        *[row(step) for step in (10, 20)],
        "Saving model checkpoint to out/checkpoint-25",  # between two rows
        *[row(step) for step in (30, 40)],
        "  successfully saved checkpoint from iteration     30 to /c",  # in the background
        "Saving model checkpoint to out/checkpoint-9000",  # another counter
        row(50),
    ]
    events = of_kind(run_of(tmp_path, *lines), "checkpoint")
    assert [event.step for event in events] == [25, 30, 40]
    assert events[-1].data["named_step"] == 9000


def test_nan_gradients_of_a_rank_are_told(tmp_path: Path) -> None:
    run = run_of(tmp_path, *rows(1, 20), "Traceback (most recent call last):", '  File "t.py"', NAN)
    (event,) = of_kind(run, "nan_detected")
    assert (event.step, event.rank, event.data["device"]) == (20, 11, 3)
    found = {finding.detector for finding in scan(run).findings}
    assert {"GRAD_PATHOLOGY", "CRASH"} <= found


def test_who_is_behind_in_a_collective_is_told(tmp_path: Path) -> None:
    waiting = [
        text
        for rank in (0, 1, 3)
        for text in (WATCHDOG.format(rank, 812), STATE.format(rank, 812, 814, 811))
    ]
    stacks = [f"frame of thread {number}" for number in range(60)]
    run = run_of(tmp_path, *rows(1, 20), *waiting, DUMP.format(2, 811), *stacks)
    report = scan(run)
    silent = next(item for item in report.findings if item.detector == "RANK_SILENT")
    assert (silent.variant, silent.ranks, silent.first_bad_step) == ("missing", (2,), 20)
    assert report.verdict == "fail"
    assert of_kind(run, "crash")[0].data["kind"] == "collective_timeout"


TRACEBACK = (
    "[rank1]: Traceback (most recent call last):",
    '[rank1]:   File "/app/train.py", line 9, in <module>',
    "[rank1]: ValueError: the batch is empty",
)
BANNER = [f"loading part {number} of the model" for number in range(40)]


@pytest.mark.parametrize(
    "after",
    [
        ["  Continuing training from global step 30", *rows(31, 60)],
        [
            "[default] Worker group FAILED. 2/3 attempts left; will restart worker group",
            *rows(31, 60),
        ],
        rows(21, 60),
    ],
)
def test_a_crash_that_was_followed_by_another_launch_is_told(
    tmp_path: Path, after: list[str]
) -> None:
    run = run_of(tmp_path, *rows(1, 30), *TRACEBACK, *BANNER, *after)
    (event,) = of_kind(run, "crash")
    assert (event.step, event.attempt) == (30, 1)
    assert "the batch is empty" in event.message
    assert [item.number for item in run.info.attempts] == [1, 2]
    report = scan(run)
    (crash,) = (item for item in report.findings if item.detector == "CRASH")
    assert (crash.first_bad_step, crash.resolved_by) == (30, 2)
    assert report.verdict != "fail"


def test_a_hang_that_was_followed_by_another_launch_is_told(tmp_path: Path) -> None:
    restart = "[default] Worker group FAILED. 2/3 attempts left; will restart worker group"
    run = run_of(tmp_path, *rows(1, 30), WATCHDOG.format(1, 9), *BANNER, restart, *rows(31, 60))
    (event,) = of_kind(run, "crash")
    assert (event.step, event.attempt, event.data["kind"]) == (30, 1, "collective_timeout")


def test_a_process_that_was_killed_before_another_launch_is_told(tmp_path: Path) -> None:
    killed = "run.sh: line 3: 12345 Killed                  python train.py"
    run = run_of(tmp_path, *rows(1, 30), killed, *BANNER, *rows(21, 60))
    (event,) = of_kind(run, "crash")
    assert (event.step, event.attempt, event.data["kind"]) == (30, 1, "killed")


def test_a_failure_after_which_the_same_launch_goes_on_is_no_crash(tmp_path: Path) -> None:
    run = run_of(tmp_path, *rows(1, 30), *TRACEBACK, *BANNER, *rows(31, 60))
    assert not of_kind(run, "crash")
    assert len(run.info.attempts) == 1


def test_a_job_that_was_put_off_and_went_on_is_told(tmp_path: Path) -> None:
    ended = CANCELLED.format("PREEMPTION")
    run = run_of(tmp_path, *rows(1, 30), ended, *BANNER, "Setting global step to 25", *rows(26, 50))
    (halted,) = of_kind(run, "halted")
    (resumed,) = of_kind(run, "resumed")
    assert (halted.step, halted.attempt, halted.data["cause"]) == (30, 1, "PREEMPTION")
    assert (resumed.step, resumed.attempt) == (25, 2)


def test_a_task_that_died_is_no_job_that_was_stopped(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        *rows(1, 9),
        *TRACEBACK,
        "slurmstepd: error: *** STEP 771.0 ON n4 CANCELLED AT 2026-02-03T04:05:06 ***",
        "srun: error: n5: task 1: Terminated",
    )
    (event,) = (event for event in run.events if event.kind in ("crash", "halted"))
    assert (event.kind, event.data["kind"]) == ("crash", "exception")


def test_printed_answers_make_no_events(tmp_path: Path) -> None:
    answers = [f"answer: 'it says {line}'" for line, *_ in SAID]
    lines = [text for step, answer in enumerate(answers, start=1) for text in (answer, row(step))]
    assert not run_of(tmp_path, *lines).events


def test_the_error_output_of_each_rank_tells_who_is_missing(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for rank in range(4):
        told = (
            [DUMP.format(2, 811)]
            if rank == 2
            else [WATCHDOG.format(rank, 812), STATE.format(rank, 812, 814, 811)]
        )
        lines = {"stdout": rows(1, 12) if rank == 0 else ["ready"], "stderr": told}
        for name, text in lines.items():
            path = tmp_path / "run" / f"rank_{rank}" / f"{name}.log"
            path.parent.mkdir(exist_ok=True)
            path.write_text("\n".join(text) + "\n", encoding="utf-8")
    (run,) = open_runs(tmp_path / "run")
    missing = [item for item in scan(run).findings if item.detector == "RANK_SILENT"]
    assert [item.ranks for item in missing] == [(2,)]


@pytest.mark.parametrize("width", [40, 61, 72, 80, 97, 100, 120, 124, 142, 160])
@pytest.mark.parametrize("between", [False, True])
def test_engine_lines_that_the_terminal_broke(tmp_path: Path, width: int, *, between: bool) -> None:
    lines: list[str] = []
    for step in range(1, 31):
        lines.append(
            f"INFO 07-28 06:{step + 10}:59 [loggers.py:118] Engine 000: Avg prompt throughput: "
            f"{step}.0 tokens/s, Avg generation throughput: 239.2 tokens/s, Running: 8 reqs, "
            f"Waiting: {step} reqs, GPU KV cache usage: {step + 60}.5%, Prefix cache hit rate: 3.0%"
        )
        lines += [f"step {step} | loss: {1 / step:.4f} | grad_norm: 0.5"] if between else []
    pieces = [line[at : at + width] for line in lines for at in range(0, len(line), width)]
    run = run_of(tmp_path, *pieces)
    use = [value for _, value in points(run, "kv_cache_usage")]
    assert use == [round((step + 60.5) / 100, 9) for step in range(1, 31)]
    assert [value for _, value in points(run, "requests_waiting")] == list(range(1, 31))
    assert run.info.unread == ()
