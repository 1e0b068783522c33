"""Console logs: which rows are read from them, at which steps, and what passes by."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from rlprobe.errors import UnknownFormatError
from rlprobe.importers import open_runs
from tests.importers.reading import log, points, read

ROW5 = "{{'loss': '{loss}', 'grad_norm': '{norm}', 'learning_rate': '1e-06', 'epoch': '{epoch}'}}\n"


def trl(*losses: float) -> list[str]:
    return [
        ROW5.format(loss=loss, norm=1.5, epoch=round(0.1 * index, 2))
        for index, loss in enumerate(losses, start=1)
    ]


def bar(at: int, of: int, desc: str = "") -> str:
    return f"{desc} {100 * at // of:3d}%|██▏    | {at}/{of} [00:{at % 60:02d}<03:19,  1.02s/it]"


def test_trainer_rows_are_numbered_and_the_notes_say_so(tmp_path: Path) -> None:
    run = read(tmp_path, "run.log", "loading\n" + "".join(trl(0.5, 0.4)))
    assert (run.info.source, run.info.framework) == ("console", "transformers")
    assert points(run, "loss") == [(1, 0.5), (2, 0.4)]
    assert run.info.notes == ("steps not logged: numbered by row",)


def test_a_bare_nan_and_a_quoted_one(tmp_path: Path) -> None:
    text = "{'loss': 0.0, 'grad_norm': nan, 'epoch': 0.1}\n{'loss': '0.1', 'grad_norm': 'nan'}\n"
    norms = points(read(tmp_path, "run.log", text), "grad_norm")
    assert [step for step, _ in norms] == [1, 2]
    assert all(math.isnan(value) for _, value in norms)


def test_steps_from_a_bar_that_is_glued_to_the_rows(tmp_path: Path) -> None:
    rows = trl(0.5, 0.4, 0.3)
    text = "\r".join(bar(at, 100) + rows[i].strip() for i, at in enumerate((10, 20, 30)))
    run = read(tmp_path, "run.log", text)
    assert points(run, "loss") == [(10, 0.5), (20, 0.4), (30, 0.3)]
    assert run.info.notes == ("steps not logged: taken from the progress bar",)


def test_a_row_before_the_first_bar_is_one_interval_earlier(tmp_path: Path) -> None:
    first, second, third = trl(0.5, 0.4, 0.3)
    text = f"{first}{bar(20, 100)}\n{second}{bar(30, 100)}\n{third}"
    assert points(read(tmp_path, "run.log", text), "loss") == [(10, 0.5), (20, 0.4), (30, 0.3)]


def test_all_bars_on_one_line_before_the_rows(tmp_path: Path) -> None:
    bars = "\r".join(bar(at, 20) for at in range(1, 21))
    run = read(tmp_path, "run.log", bars + "\n" + "".join(trl(0.5, 0.4, 0.3, 0.2)))
    assert points(run, "loss") == [(5, 0.5), (10, 0.4), (15, 0.3), (20, 0.2)]


def test_bars_of_downloads_tell_no_step(tmp_path: Path) -> None:
    text = "Map:  60%|██▏    | 4467/7473 [00:00<00:00, 44463.75 examples/s]\n" + "".join(trl(0.5))
    assert points(read(tmp_path, "run.log", text), "loss") == [(1, 0.5)]


def test_evaluations_and_the_summary_are_no_steps(tmp_path: Path) -> None:
    rows = trl(0.5, 0.4)
    text = (
        f"{rows[0]}{{'eval_loss': 2.0, 'eval_runtime': 3.0, 'epoch': 0.1}}\n{rows[1]}"
        "{'train_runtime': 9.0, 'train_loss': 0.45, 'epoch': 0.2}\n"
    )
    run = read(tmp_path, "run.log", text)
    assert points(run, "loss") == [(1, 0.5), (2, 0.4)]
    assert points(run, "eval/loss") == [(1, 2.0)]


def test_llamafactory_prints_each_row_twice(tmp_path: Path) -> None:
    text = "".join(
        f"[INFO|2026-01-01 01:00:00] callbacks:157 >> {{'loss': {loss:.4f}, "
        f"'learning_rate': 4.9985e-05, 'epoch': 0.03}}\n"
        f"{{'loss': {loss}, 'grad_norm': nan, 'learning_rate': 4.998452e-05, 'epoch': 0.03}}\n"
        for loss in (0.51234, 0.41234)
    )
    assert points(read(tmp_path, "run.log", text), "loss") == [(1, 0.51234), (2, 0.41234)]


def test_ms_swift_tells_the_step_as_a_share(tmp_path: Path) -> None:
    text = (
        "{'loss': 0.5, 'reward': 0.1, 'global_step/max_steps': '3/9', 'percentage': '33.33%', "
        "'elapsed_time': '1m 35s', 'remaining_time': '3m 1s'}\n"
    )
    assert points(read(tmp_path, "run.log", text), "reward_mean") == [(3, 0.1)]


def test_a_dict_broken_over_lines(tmp_path: Path) -> None:
    text = "{'loss': 0.5, 'grad_norm': 1.2\n5, 'learning_rate': 1e-06,\n 'epoch': 0.1}\nnext\n"
    assert points(read(tmp_path, "run.log", text), "grad_norm") == [(1, 1.25)]


def test_an_open_brace_swallows_no_rows(tmp_path: Path) -> None:
    text = "answers: {'a': [1, 2\nstep 1 | loss 0.5\nstep 2 | loss 0.4\n}\n"
    assert points(read(tmp_path, "run.log", text), "loss") == [(1, 0.5), (2, 0.4)]


def test_verl_with_prefix_numpy_and_a_scaled_key(tmp_path: Path) -> None:
    prefix = "\x1b[36m(TaskRunner pid=48, ip=10.0.0.1)\x1b[0m "
    text = (
        f"{prefix}step:0 - val-core/gsm8k/mean@1:0.25\n"
        f"{prefix}step:1 - actor/pg_loss:np.float64(0.15) - actor/grad_norm:np.float64(nan)"
        " - actor/lr(1e-4):0.010 - actor/ppo_kl:-0.001 - actor/kl_loss:0.02"
        " - response_length/clip_ratio:0.125\n"
    )
    run = read(tmp_path, "run.log", text)
    assert run.info.framework == "verl"
    assert points(run, "policy_loss") == [(1, 0.15)]
    assert math.isnan(points(run, "grad_norm")[0][1])
    assert points(run, "lr") == [(1, 0.010 * 1e-4)]
    assert points(run, "approx_kl") == [(1, -0.001)]
    assert points(run, "kl_mean") == [(1, 0.02)]
    assert points(run, "truncation_rate") == [(1, 0.125)]
    assert points(run, "eval/gsm8k/mean@1") == [(0, 0.25)]


def test_slime_and_skyrl_dicts_behind_their_step(tmp_path: Path) -> None:
    slime = (
        "[2026-08-22 10:00:01] train_metric_utils.py:135 - rollout 12: {'rollout/raw_reward': 0.5,"
        " 'rollout/rewards': 0.0, 'rollout/truncated_ratio': 0.25, 'kind': 'x'}\n"
    )
    run = read(tmp_path, "slime.log", slime)
    assert points(run, "reward_mean") == [(12, 0.5)]
    assert points(run, "shaped_reward_mean") == [(12, 0.0)]
    skyrl = (
        "2026 | INFO | Step 12: \n{'reward/avg_raw_reward': '0.5000',\n"
        " 'policy/policy_entropy': '0.3000'}\n"
    )
    assert points(read(tmp_path, "skyrl.log", skyrl), "entropy") == [(12, 0.3)]


MEGATRON = (
    " iteration {at:8d}/    1000 | consumed samples: 40 | elapsed time per iteration (ms): 1500.0 |"
    " learning rate: 1.000E-06 |{loss} loss scale: {scale} | grad norm: {norm} |"
    " number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |\n"
)


def test_megatron_lines(tmp_path: Path) -> None:
    text = MEGATRON.format(
        at=10, loss=" lm loss: 2.5E+00 |", scale=1.0, norm=0.5, skipped=0
    ) + MEGATRON.format(at=20, loss="", scale=1.0, norm="nan", skipped=1)
    run = read(tmp_path, "run.out", text)
    assert run.info.framework == "megatron"
    assert points(run, "loss") == [(10, 2.5)], "a negative or NaN loss is not in the line"
    assert points(run, "step_time") == [(10, 1.5), (20, 1.5)]
    assert points(run, "update_skipped") == [(10, 0.0), (20, 1.0)]
    assert math.isnan(points(run, "grad_norm")[1][1])


def test_megatron_values_that_stand_for_not_measured(tmp_path: Path) -> None:
    text = MEGATRON.format(at=1, loss=" lm-loss: 2.0 |", scale=-1.0, norm="0.000", skipped=0)
    run = read(tmp_path, "run.out", text)
    assert points(run, "loss") == [(1, 2.0)]
    assert points(run, "grad_norm") == points(run, "loss_scale") == []


def test_a_warning_about_the_gradient_goes_into_its_step(tmp_path: Path) -> None:
    text = "***WARNING*** Bad grad_norm detected (grad_norm=nan)\n" + MEGATRON.format(
        at=7, loss="", scale=1.0, norm="", skipped=1
    ).replace(" grad norm:  |", "")
    ((step, value),) = points(read(tmp_path, "run.out", text), "grad_norm")
    assert step == 7
    assert math.isnan(value)


def test_a_warning_alone_is_at_the_step_told_last(tmp_path: Path) -> None:
    text = "[Global Step: 20] Update Actor Ends ...\nWARN: rank 0 grad_norm is not finite: inf\n"
    assert points(read(tmp_path, "run.log", text), "grad_norm") == [(20, math.inf)]


OVERFLOW = (
    "[INFO] [loss_scaler.py:181:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. "
    "Attempted loss scale: {a}, reducing to {b}\n"
)


def test_deepspeed_overflows_between_its_lines(tmp_path: Path) -> None:
    line = "[Rank 0] step={at}, skipped={n}, lr=[9.6e-06, 9.6e-06], mom=[(0.9, 0.95)]\n"
    text = OVERFLOW.format(a=64, b=32) + line.format(at=10, n=1) + line.format(at=20, n=1)
    run = read(tmp_path, "run.log", text)
    assert points(run, "update_skipped") == [(10, 1.0), (20, 0.0)]
    assert points(run, "loss_scale") == [(10, 32.0)]
    assert points(run, "lr") == [(10, 9.6e-06), (20, 9.6e-06)]


def test_overflows_beside_a_bar(tmp_path: Path) -> None:
    text = "".join(bar(at, 100) + OVERFLOW.format(a=2**-at, b=2 ** -(at + 1)) for at in (3, 4))
    assert points(read(tmp_path, "run.log", text), "loss_scale") == [(3, 2**-4), (4, 2**-5)]


def test_metrics_in_a_progress_bar(tmp_path: Path) -> None:
    text = "\r".join(
        f"[losses/total_loss: {loss} | losses/value_loss: 7.5]:  16%|███       | {at}/6400 "
        "[1:14:23<1:13:02,  1.23it/s]"
        for at, loss in ((10, 1.5), (20, 1.25))
    )
    assert points(read(tmp_path, "run.log", text), "value_loss") == [(10, 7.5), (20, 7.5)]


def test_output_of_a_container(tmp_path: Path) -> None:
    text = "".join(
        json.dumps({"log": row, "stream": "stdout", "time": "2026-01-01T00:00:00Z"}) + "\n"
        for row in trl(0.5, 0.25)
    )
    for name in ("x-json.log", "x.jsonl"):
        run = read(tmp_path, name, text)
        assert run.info.source == "console"
        assert points(run, "loss") == [(1, 0.5), (2, 0.25)]


def test_the_row_of_every_rank_counts_once(tmp_path: Path) -> None:
    line = (
        "[rank{r}]:[titan] 2026 - INFO - step:  4  loss:  7.62585  grad_norm: 26.6250"
        "  tps: 10,0{r}0  mfu: 13.99%\n"
    )
    run = read(tmp_path, "run.log", "".join(line.format(r=rank) for rank in range(8)))
    assert run.info.framework == "torchtitan"
    assert points(run, "loss") == [(4, 7.62585)]
    assert points(run, "tokens_per_second_per_gpu") == [(4, 10000.0)]
    assert points(run, "mfu") == [(4, 13.99 / 100)]
    assert len(run.info.attempts) == 1


def test_a_relaunch_in_one_log(tmp_path: Path) -> None:
    lines = [f"step {step} | loss {step / 2}\n" for step in (1, 2, 3, 2, 3, 4)]
    run = read(tmp_path, "run.log", "".join(lines))
    assert [(a.first_step, a.last_step) for a in run.info.attempts] == [(1, 3), (2, 4)]


@pytest.mark.parametrize(
    ("text", "metric", "expected"),
    [
        (
            "step 00012/16704 (0.07%) | loss: 2.8 | lrm: 1.00 | dt: 640.00ms | tok/sec: 814,785\n",
            "tokens_per_second",
            [(12, 814785.0)],
        ),
        (
            "SUCCESS Step 12 |   41.20s | Loss 0.0123 | Mismatch KL 0.0004 | Grad. Norm 0.1721\n",
            "mismatch_kl",
            [(12, 0.0004)],
        ),
        ("Step 3:  avg_reward=0.25, seq_len=404.5\n", "reward_mean", [(3, 0.25)]),
        ("Epoch 3/10 - loss: 0.5 - acc: 0.9\n", "loss", [(3, 0.5)]),
        (
            "Epoch: [2]  [7/100]  eta: 0:00:00  lr: 0.001  loss: 6.5 (6.6)  grad_norm: 0.4 (nan)\n",
            "grad_norm",
            [(207, 0.4)],
        ),
        ("1|10|Loss: 0.5:   1%|   | 10/1000 [00:10<10:00,  1.0it/s]\n", "loss", [(10, 0.5)]),
        (
            "Train epoch [1/1]:  10%|█  | 3/10 [00:10<01:30, 10.1s/it, pg=0.5, glen=9, kl=0.25]\n",
            "kl_mean",
            [(3, 0.25)],
        ),
        (
            "Epoch: 0 | Step: 1 | Actor Loss: 0.5\nEpoch: 0 | Step: 2 | Actor Loss: 0.25\n"
            "Epoch: 1 | Step: 1 | Actor Loss: 0.125\n",
            "policy_loss",
            [(1, 0.5), (2, 0.25), (3, 0.125)],
        ),
        ("epoch 001: 100 / 900 loss=5.5, num_updates=100, gnorm=1.5\n", "grad_norm", [(100, 1.5)]),
        (
            "[train:1] [step=7/900,epoch=0]\n  train/CrossEntropyLoss=2.5\n",
            "loss",
            [(7, 2.5)],
        ),
        (
            "Epoch 1/9 Step 3/12 Train step 3/90 done.\n│ ppo_actor/task_reward/avg │ 5.0e-01 │\n",
            "reward_mean",
            [(3, 0.5)],
        ),
        (
            "===== Step 2/150 =====\n  • Loss: 0.5\n  • Avg Reward: 0.25\n",
            "reward_mean",
            [(2, 0.25)],
        ),
        (
            "| Training Loss | Epoch | Step |\n|:--:|:--:|:--:|\n| 0.5 | 0.1 | 100 |\n",
            "loss",
            [(100, 0.5)],
        ),
        ("global_step=2048, episodic_return=[21.]\n", "reward_mean", [(2048, 21.0)]),
        ("| Step | Training Loss |\n|---|---|\n| 5 | 0.25 |\n", "loss", [(5, 0.25)]),
        ("Step | Training Loss | kl\n-- | -- | --\n5 | -0.25 | nan\n", "loss", [(5, -0.25)]),
        (
            "Step  loss  clipped_ratio\n1     0.5     1.0\n2     0.25  0.5\n",
            "loss",
            [(1, 0.5), (2, 0.25)],
        ),
        (
            "# config: x\n# step loss grad_norm\n1 8.5 45.5\n2 5.5 15.5\n",
            "loss",
            [(1, 8.5), (2, 5.5)],
        ),
        (
            "<table>\n<tr>\n<th>Step</th>\n<th>Training Loss</th>\n</tr>\n"
            "<tr>\n<td>10</td>\n<td>0.5</td>\n</tr>\n</table>\n",
            "loss",
            [(10, 0.5)],
        ),
    ],
)
def test_other_spellings(
    tmp_path: Path, text: str, metric: str, expected: list[tuple[int, float]]
) -> None:
    assert points(read(tmp_path, "run.log", text), metric) == expected


def test_notebook_tables_of_unsloth(tmp_path: Path) -> None:
    text = (
        "Step | Training Loss | reward | completions / mean_length | rewards / acc / mean | kl\n"
        "-- | -- | -- | -- | -- | --\n1 | -0.25 | 13.5 | 120 | 0.5 | nan\n"
        "2 | -0.125 | 6.5 | 130 | 0.25 | No Log\n"
    )
    run = read(tmp_path, "run.log", text)
    assert run.info.framework == "trl"
    assert points(run, "completion_length_mean") == [(1, 120.0), (2, 130.0)]
    assert points(run, "reward_component/acc") == [(1, 0.5), (2, 0.25)]
    assert len(points(run, "kl_mean")) == 1


def test_tables_of_stable_baselines(tmp_path: Path) -> None:
    rule = "-" * 41 + "\n"
    text = "".join(
        f"{rule}| rollout/                |             |\n"
        f"|    ep_rew_mean          | {reward}        |\n"
        "| time/                   |             |\n"
        f"|    total_timesteps      | {at}       |\n| train/                  |             |\n"
        f"|    entropy_loss         | -0.5        |\n|    loss                 | 0.5 |\n{rule}"
        for at, reward in ((2048, 20.5), (4096, 21.5))
    )
    run = read(tmp_path, "run.log", text)
    assert run.info.framework == "sb3"
    assert points(run, "reward_mean") == [(2048, 20.5), (4096, 21.5)]
    assert points(run, "entropy") == [(2048, 0.5), (4096, 0.5)], "minus entropy is logged"


def test_blocks_of_names_under_a_step(tmp_path: Path) -> None:
    text = "".join(
        f"{'#' * 40}\n       Learning iteration {at}/100\n\n   Value function loss: {loss}\n"
        "   Mean total reward: 25.5\n   Mean action noise std: 0.56\n"
        for at, loss in ((7, 0.5), (8, "inf"))
    )
    run = read(tmp_path, "run.log", text)
    assert points(run, "value_loss") == [(7, 0.5), (8, math.inf)]
    assert points(run, "reward_mean") == [(7, 25.5), (8, 25.5)]


def test_printed_lists_of_rewards(tmp_path: Path) -> None:
    text = "rewards: tensor([-1., -1., -1.])\nrewards: tensor([0.0, 1.0], device='cuda:0')\n"
    run = read(tmp_path, "run.log", text)
    assert points(run, "reward_mean") == [(1, -1.0), (2, 0.5)]
    assert points(run, "zero_variance_group_fraction") == [(1, 1.0), (2, 0.0)]


def test_complaints_about_steps_that_went_back(tmp_path: Path) -> None:
    text = "wandb: WARNING Step must only increase in log calls.  Step 110 < 161; dropping\n"
    run = read(tmp_path, "run.log", text)
    assert [attempt.first_step for attempt in run.info.attempts] == [161, 110]


NO_METRICS = """\
{'model': {'path': 'x', 'lr': 1e-6}, 'loss': 'dapo'}
        print0(f"Step {step:05d} | Validation bpb: {val_bpb:.6f}")
<think> Let's analyze each formula step by step: step 3 gives the reward of 5 coins for everyone.
Step 2: the total number of apples is 12, so the loss to John is 4 apples in the end of the day.
training_args: {"learning_rate": 1e-06, "max_steps": 200, "warmup_ratio": 0.1}
INFO setting step 5 of the pipeline to 3 workers
"""


def test_what_only_looks_like_metrics(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormatError, match="no metrics"):
        open_runs(log(tmp_path, "run.log", NO_METRICS))
    run = read(tmp_path, "more.log", NO_METRICS + "step 1 | loss 0.5\n" + NO_METRICS)
    assert points(run, "loss") == [(1, 0.5)]
    assert len(run.steps) == 1


def test_a_row_of_an_evaluation_is_no_row_of_training(tmp_path: Path) -> None:
    rows = [f"{{'loss': 0.1, 'completions/mean_length': 40{n}.0, 'epoch': {n}}}" for n in range(4)]
    evaluated = "{'eval_loss': 0.2, 'completions/mean_length': 12.5, 'epoch': 2}"
    run = read(tmp_path, "run.log", "\n".join([*rows[:2], evaluated, *rows[2:]]))
    lengths = points(run, "completion_length_mean")
    assert [value for _, value in lengths] == [400, 401, 402, 403]
    assert [value for _, value in points(run, "eval/completion_length_mean")] == [12.5]
