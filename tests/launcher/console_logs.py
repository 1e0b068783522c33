"""Small logs as commands print them: what `record` and `scan` must read alike."""
# ruff: noqa: E501 - lines as they are printed

from __future__ import annotations

CLEAR = "\x1b[K"
BOLD, RED, PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"


def _sb3(step: int) -> list[str]:
    return [
        "-" * 41,
        "| rollout/                |             |",
        f"|    ep_len_mean          | {20 + step}          |",
        f"|    ep_rew_mean          | {21.5 + step}        |",
        "| time/                   |             |",
        "|    fps                  | 1523        |",
        f"|    iterations           | {step}           |",
        f"|    total_timesteps      | {2048 * step}        |",
        *(
            [
                "| train/                  |             |",
                f"|    approx_kl            | 0.00{step}       |",
                f"|    entropy_loss         | -0.6{step}       |",
                f"|    loss                 | {5.5 - step}         |",
                f"|    value_loss           | {50.5 - step}        |",
            ]
            if step > 1
            else []
        ),
        "-" * 41,
    ]


def _lightning_bar(epoch: int, at: int) -> str:
    full = "━" * (at * 4) + "╺" * (40 - at * 4)
    return (
        f"\rEpoch {epoch}:  {at}0%|{full}| {at}/10 [00:0{at % 10}<00:05,  9.8it/s, v_num=0, "
        f"train_loss={2.0 - epoch / 10 - at / 100:.3f}]"
    )


def _verl(step: int) -> str:
    return (
        f"\x1b[36m(TaskRunner pid=48211)\x1b[0m step:{step} - actor/entropy:0.4{step} - "
        f"actor/pg_loss:np.float64(0.00{step}) - actor/grad_norm:np.float64(0.3{step}) - "
        f"critic/score/mean:0.5{step} - response_length/mean:912.{step} - timing_s/step:143.{step}"
    )


def _hf_bar(step: int) -> str:
    return f"\r {step}0%|{'█' * step}         | {step}/10 [00:0{step}<00:09,  1.02s/it]"


LOGS: dict[str, list[str]] = {
    "Stable-Baselines3 tables": [
        "Using cpu device", "Wrapping the env with a `Monitor` wrapper",
        *(line for step in range(1, 6) for line in _sb3(step)),
    ],
    "Lightning bars": [
        "GPU available: False, used: False",
        "  | Name  | Type   | Params",
        "----------------------------",
        "0 | layer | Linear | 5",
        *("".join(_lightning_bar(epoch, at) for at in range(1, 11)) for epoch in range(4)),
        "`Trainer.fit` stopped: `max_epochs=4` reached.",
    ],
    "CleanRL prints": [
        line
        for step in range(1, 9)
        for line in (
            f"global_step={step * 128}, episodic_return=[{20.0 + step}]", f"SPS: {1000 + step}",
        )
    ],
    "verl lines": [
        "(TaskRunner pid=48211) TaskRunner hostname: box, PID: 48211",
        *map(_verl, range(1, 8)),
        "(WorkerDict pid=48400) WARNING 11-30 21:00:00 [scheduler.py:1] something",
        "local_global_step_folder: checkpoints/p/e/global_step_7",
    ],
    "dicts of the Trainer beside its bar": [
        line
        for step in range(1, 7)
        for line in (
            _hf_bar(step),
            f"{{'loss': {1.0 / step:.4f}, 'grad_norm': 1.{step}, 'learning_rate': 1e-06, "
            f"'epoch': 0.{step}}}",
        )
    ]
    + [
        "{'eval_loss': 0.5, 'eval_runtime': 1.25, 'epoch': 0.6}",
        "{'train_runtime': 12.5, 'train_loss': 0.4, 'epoch': 0.6}",
    ],
    "dicts of strings": [
        f"{{'loss': '{1.0 / step:.4g}', 'reward': '0.{step}', 'kl': 'nan', 'epoch': '0.{step}'}}"
        for step in range(1, 7)
    ],
    "tqdm with a total": [
        "".join(
            f"\rtrain:  {step}%|█         | {step}/100 [00:01<00:20,  9.0it/s, "
            f"loss=0.{step}, reward=1.{step}]"
            for step in range(1, 8)
        )
    ],
    "colours, torn": [
        f"{BOLD}step {step}{PLAIN} | {RED}loss{PLAIN} 0.{step} | {RED}grad_norm\x1b[0 1.{step}{CLEAR}"
        for step in range(1, 8)
    ]
    + ["\x1b[", "\x1b]0;title\x07step 8 | loss 0.8 | grad_norm 1.8", "\x1b[31"],
    "Megatron with overflows": [
        "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        *(
            f" [2024-01-01 00:00:0{n}] iteration {n:8d}/     100 | consumed samples: {n * 8} | "
            f"elapsed time per iteration (ms): 1234.0 | learning rate: 1.000E-05 | lm loss: {n}.5E+00 "
            f"| loss scale: 32768.0 | grad norm: 0.{n} | number of skipped iterations:   0 | number "
            "of nan iterations:   0 |"
            for n in range(1, 6)
        ),
        "  successfully saved checkpoint from iteration       5 to /ckpt [ t 1/1, p 1/1 ]",
        *("OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 32768, reducing to 16384",) * 3,
    ],
    "an engine beside the rows": [
        line
        for step in range(1, 7)
        for line in (
            "INFO 06-01 10:00:00 [loggers.py:123] Engine 000: Avg prompt throughput: 12.0 tokens/s, "
            f"Avg generation throughput: 1.0 tokens/s, Running: 4 reqs, Waiting: {step} reqs, GPU "
            f"KV cache usage: 1{step}.5%, Prefix cache hit rate: 0.0%",
            f"step {step} | loss 0.{step} | reward 0.{step}",
        )
    ],
    "ranks that say the same": [
        f"[rank{rank}]: step {step} | loss 0.{step} | grad_norm {rank}.5"
        for step in range(1, 6)
        for rank in (0, 1)
    ],
    "markdown": [
        "| Step | Training Loss | reward |", "|---|---|---|",
        *(f"| {step} | 0.{step} | {step} |" for step in range(1, 6)),
    ],
    "a collective that timed out": [
        *(f"step {step} | loss 0.{step}" for step in range(1, 5)),
        "[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=42, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for "
        "600028 milliseconds before timing out.",
        *(f"step {step} | loss 0.{step}" for step in range(5, 7)),
    ],
    "what is not understood": [
        *(f"step {step} | loss 0.{step} | reward 1.{step}" for step in range(1, 6)),
        "reward: high, loss: 0.5.5 at 3, kl=1e", "loss=", "reward=[0.1, 0.2, 0.3]",
        *(f"step {step} | loss 0.{step} | reward 1.{step}" for step in range(6, 9)),
        "my_own_name 12", "my_other_name: 1.5",
    ],
    "two trainings": [
        *(f"{{'loss': 0.{n}, 'learning_rate': 1e-05, 'epoch': 0.{n}}}" for n in range(1, 5)),
        "{'train_runtime': 12.5, 'train_loss': 0.4, 'epoch': 0.4}",
        "***** Running training *****", "  Num examples = 8", "  Total optimization steps = 4",
        *(f"{{'loss': 0.{n}, 'reward': 0.{n}, 'kl': 0.0{n}, 'epoch': 0.{n}}}" for n in range(1, 5)),
    ],
    "JSON lines with text in them": [
        f'{{"step": {step}, "loss": 0.{step}, "phase": "train", "grad_norm": {"NaN" if step > 6 else 0.5}}}'
        for step in range(1, 9)
    ],
    "CSV": ["step,loss,reward", *(f"{step},0.{step},{step}" for step in range(1, 9))],
    "lines that a terminal broke": [
        line
        for step in range(1, 7)
        for line in (f"step {step:05d} | loss 0.5{step} | grad_norm 1.", f"2{step}")
    ],
    "a launch that died and was resumed": [
        *(f"step {step} | loss {'nan' if step > 5 else step / 10}" for step in range(1, 8)),
        "Traceback (most recent call last):",
        '  File "/job/train.py", line 3, in <module>',
        "RuntimeError: the loss is not finite",
        "Resuming training from checkpoint ckpt/step_4",
        *(f"step {step} | loss 0.{step}5" for step in range(5, 12)),
        "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
    ],
    "a launch that is resumed": [
        *(f"step {step} | loss 0.{step}" for step in range(1, 7)),
        "Resuming training from checkpoint ckpt/step_4",
        *(f"step {step} | loss 0.{step}5" for step in range(5, 9)),
    ],
}  # fmt: skip


def text_of(name: str) -> str:
    """A log as it stands in a file."""
    return "\n".join(LOGS[name]) + "\n"
