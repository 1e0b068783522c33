"""Logs as the training frameworks print them, with numbers of our own.

Each function gives the text of a log, the steps in it, and every value by the key as printed. The
format is the framework's: where it is printed is named in the function's docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Values = dict[str, list[float]]


@dataclass(frozen=True)
class Sample:
    """A log and what is in it: a value for every key and step, nan where the log has none."""

    text: str
    steps: list[int]
    values: Values
    file: str = "train.log"
    evaluation: Values = field(default_factory=dict)


FAMILIES: dict[str, Callable[[], Sample]] = {}
_RULE = "-" * 88


def family(make: Callable[[], Sample]) -> Callable[[], Sample]:
    FAMILIES[make.__name__] = make
    return make


def column(start: float, by: float, count: int, digits: int = 4) -> list[float]:
    return [round(start + by * place * (-1) ** place, digits) for place in range(count)]


def lines(count: int, line: Callable[[int], str]) -> str:
    return "\n".join(line(place) for place in range(count)) + "\n"


@family
def deepspeed_chat() -> Sample:
    """DeepSpeedExamples step3_rlhf_finetuning/main.py: the reward is printed under its step."""
    act, cri = column(0.0421, 0.003, 6, 6), column(0.1183, 0.002, 6, 6)
    reward, ema = column(-0.5312, 0.0625, 6), column(-0.5, 0.0312, 6)

    def block(n: int) -> str:
        end_to_end, generation = 7.31 + n / 100, 4.02 + n / 100
        return (
            f"Epoch: 0 | Step: {n} | PPO Epoch: 1 | Actor Loss: {act[n]} | Critic Loss: {cri[n]}"
            " | Unsupervised Loss: 0.0\n"
            f"End-to-End => Latency: {end_to_end:.2f}s, TFLOPs: 9.13, Samples/sec: 4.38, "
            "Time/seq 0.23s, Batch Size: 32, Total Seq. Length: 512\n"
            f"Generation => Latency: {generation:.2f}s, Per-token Latency 15.70 ms, "
            "TFLOPs: 2.41, BW: 190.12 GB/sec, Answer Seq. Length: 256\n"
            "Training   => Latency: 3.29s, TFLOPs: 17.33\n"
            "Actor Model Parameters => 1.316 B, Critic Model Parameters => 0.331 B\n"
            f"Average reward score: {reward[n]} | EMA reward score: {ema[n]}\n{_RULE}"
        )

    values = {"Actor Loss": act, "Critic Loss": cri, "Average reward score": reward}
    return Sample(lines(6, block), list(range(6)), {**values, "EMA reward score": ema})


@family
def deepspeed_chat_old() -> Sample:
    """The same of 2023: `epoch: 0|step: 5|ppo_ep: 1|act_loss: …`, without blanks at the bars."""
    act, cri = column(0.02153, 0.004, 7, 6), column(0.0912, 0.001, 7, 6)
    reward = column(0.4312, 0.0125, 7)

    def block(n: int) -> str:
        return (
            f"epoch: 0|step: {n}|ppo_ep: 1|act_loss: {act[n]}|cri_loss: {cri[n]}|unsuper_loss: 0.0"
            f"\naverage reward score: {reward[n]}\n{_RULE}\n"
            "|E2E latency=6.11s |Gather latency=0.00s (0.00%) |Generate time=3.50s (57.21%) "
            "|Training time=2.33s (38.11%) |Others=0.29 (4.68%)|CurSamplesPerSec=5.24 "
            "|AvgSamplesPerSec=5.19"
        )

    values = {"act_loss": act, "cri_loss": cri, "average reward score": reward}
    return Sample(lines(7, block), list(range(7)), values)


@family
def deepspeed_engine() -> Sample:
    """DeepSpeed engine `_report_progress`, utils/timer.py ThroughputTimer."""
    steps = [10, 20, 30, 40]
    lr = [9.65e-06, 9.6e-06, 8.1e-06, 7.25e-06]

    def block(n: int) -> str:
        stamp = f"[2024-03-0{n + 1} 10:12:0{n},123] [INFO] "
        return (
            f"{stamp}[logging.py:96:log_dist] [Rank 0] step={steps[n]}, skipped={n}, "
            f"lr=[{lr[n]}, {lr[n]}], mom=[(0.9, 0.95), (0.9, 0.95)]\n"
            f"{stamp}[timer.py:199:stop] epoch=0/micro_step={steps[n]}/global_step={steps[n]}, "
            f"RunningAvgSamplesPerSec={12.5 + n}, CurrSamplesPerSec={13.25 + n}, "
            "MemAllocated=4.34GB, MaxMemAllocated=11.2GB"
        )

    values = {
        "lr": lr,
        "skipped": [0.0, 1.0, 2.0, 3.0],
        "RunningAvgSamplesPerSec": [12.5, 13.5, 14.5, 15.5],
        "CurrSamplesPerSec": [13.25, 14.25, 15.25, 16.25],
    }
    return Sample(lines(4, block), steps, values)


@family
def megatron() -> Sample:
    """Megatron-LM training.py `training_log`."""
    steps = [100, 200, 300, 400]
    loss, norm = [9.123456, 7.654321, 6.5e00, 6.012345], [3.251, 2.125, 1.875, 1.502]
    ms = [1234.5, 1201.2, 1198.7, 1203.1]

    def line(n: int) -> str:
        return (
            f" [2025-01-0{n + 1} 00:0{n}:11] iteration {steps[n]:8d}/{50000:8d} | "
            f"consumed samples: {steps[n] * 256:12d} | elapsed time per iteration (ms): "
            f"{ms[n]:.1f} | throughput per GPU (TFLOP/s/GPU): 41{n}.2 | learning rate: "
            f"{1.5e-6 * (n + 1):.6E} | global batch size: {256:5d} | lm loss: {loss[n]:.6E} | "
            f"loss scale: 1.0 | grad norm: {norm[n]:.3f} | number of skipped iterations:   0 | "
            "number of nan iterations:   0 |"
        )

    values = {
        "lm loss": loss,
        "grad norm": norm,
        "learning rate": [1.5e-6, 3e-6, 4.5e-6, 6e-6],
        "consumed samples": [25600.0, 51200.0, 76800.0, 102400.0],
        "throughput per GPU (TFLOP/s/GPU)": [410.2, 411.2, 412.2, 413.2],
    }
    return Sample(lines(4, line), steps, values)


@family
def mmengine() -> Sample:
    """mmengine LoggerHook: `Epoch(train) [1][ 50/1563]  lr: …  loss: …`; a place in its epoch."""
    loss, norm = column(1.4919, 0.05, 6), column(8.25, 0.5, 6)
    box = column(0.1391, 0.01, 6)

    def line(n: int) -> str:
        epoch, place = n // 3 + 1, (n % 3 + 1) * 50
        return (
            f"04/15 16:50:{10 + n} - mmengine - INFO - Epoch(train) [{epoch}][{place:3d}/150]  "
            f"base_lr: 2.0000e-02 lr: {1.25e-3 * (n + 1):.4e}  eta: 0:0{n}:15  time: 0.3082  "
            f"data_time: 0.0042  memory: 3312  grad_norm: {norm[n]:.4f}  loss: {loss[n]:.4f}  "
            f"loss_rpn_bbox: {box[n]:.4f}  acc: 88.8672"
        )

    values = {
        "loss": loss,
        "grad_norm": norm,
        "loss_rpn_bbox": box,
        "lr": [1.25e-3, 2.5e-3, 3.75e-3, 5e-3, 6.25e-3, 7.5e-3],
    }
    return Sample(lines(6, line), [50, 100, 150, 200, 250, 300], values)


@family
def mmengine_iterations() -> Sample:
    """mmengine's IterBasedTrainLoop: `Iter(train) [  50/80000]`."""
    loss, steps = column(2.7312, 0.1, 4), [50, 100, 150, 200]

    def line(n: int) -> str:
        return (
            f"2023/06/1{n} 09:11:4{n} - mmengine - INFO - Iter(train) [{steps[n]:5d}/80000]  "
            f"lr: {0.01 - n * 0.001:.4e}  eta: 5:0{n}:12  time: 0.2112  data_time: 0.0101  "
            f"memory: 8151  loss: {loss[n]:.4f}  decode.loss_ce: {loss[n] / 2:.4f}"
        )

    values = {
        "loss": loss,
        "decode.loss_ce": [round(x / 2, 4) for x in loss],
        "lr": [0.01, 0.009, 0.008, 0.007],
    }
    return Sample(lines(4, line), steps, values)


@family
def tianshou() -> Sample:
    """Tianshou's trainers: a bar per epoch with a postfix, then the test's `a ± b`."""
    reward, loss = column(112.5, 13.25, 5, 2), column(0.512, 0.031, 5, 3)
    best = [max(reward[: n + 1]) for n in range(5)]

    def block(n: int) -> str:
        bar = (
            f"Epoch #{n + 1}: 10001it [00:1{n}, 903.21it/s, env_step={(n + 1) * 10000}, "
            f"gradient_step={(n + 1) * 1000}, len=20{n}, loss={loss[n]:.3f}, n/ep=0, n/st=10, "
            f"rew={reward[n] - 2:.2f}]"
        )
        test = (
            f"Epoch #{n + 1}: test_reward: {reward[n]:.6f} ± {n + 0.5:.6f}, "
            f"best_reward: {best[n]:.6f} ± 0.000000 in #{n + 1}"
        )
        return f"{bar}\n{test}"

    values = {"test_reward": reward, "best_reward": best, "loss": loss}
    # Updates are counted by `gradient_step`; the test belongs to the last of its epoch.
    return Sample(lines(5, block), [1000, 2000, 3000, 4000, 5000], values)


@family
def keras() -> Sample:
    """Keras `fit`: `Epoch 1/5`, then a bar that is drawn again after carriage returns."""
    loss, accuracy = column(0.9123, 0.05, 5), column(0.6512, 0.02, 5)
    held = column(0.8312, 0.04, 5)

    def block(n: int) -> str:
        drawn = "\r".join(
            f"{done:4d}/1875 ━━━━━━━━━━━━━━━━━━━━ 3s 2ms/step - accuracy: 0.{done:04d} - loss: "
            f"1.{done:04d}"
            for done in (1, 600, 1200)
        )
        return (
            f"Epoch {n + 1}/5\n{drawn}\r1875/1875 ━━━━━━━━━━━━━━━━━━━━ 4s 2ms/step - accuracy: "
            f"{accuracy[n]:.4f} - loss: {loss[n]:.4f} - val_loss: {held[n]:.4f}"
        )

    values = {"loss": loss, "accuracy": accuracy, "val_loss": held}
    return Sample(lines(5, block), [1, 2, 3, 4, 5], values)


@family
def keras_old() -> Sample:
    """Keras 2: `[==============================] - 5s 3ms/step - loss: 0.5`."""
    loss, accuracy = column(0.4421, 0.03, 4), column(0.8112, 0.01, 4)

    def block(n: int) -> str:
        return (
            f"Epoch {n + 1}/4\n938/938 [==============================] - 5s 5ms/step - loss: "
            f"{loss[n]:.4f} - accuracy: {accuracy[n]:.4f}"
        )

    return Sample(lines(4, block), [1, 2, 3, 4], {"loss": loss, "accuracy": accuracy})


@family
def fastai() -> Sample:
    """Fastai's ProgressCallback as text: a fixed-width table of epochs with a time of its own."""
    train, held = column(0.7312, 0.05, 5, 6), column(0.6912, 0.03, 5, 6)
    rate = column(0.2512, 0.02, 5, 6)
    head = "epoch     train_loss  valid_loss  error_rate  time    \n"

    def line(n: int) -> str:
        return f"{n:<10}{train[n]:<12.6f}{held[n]:<12.6f}{rate[n]:<12.6f}00:1{n}   "

    values = {"train_loss": train, "valid_loss": held, "error_rate": rate}
    return Sample(head + lines(5, line), list(range(5)), values)


@family
def mlx() -> Sample:
    """mlx_lm/tuner/trainer.py: `Iter 10: Train loss 2.1, Learning Rate 1e-05, It/sec …`."""
    loss, steps = column(2.125, 0.125, 5, 3), [10, 20, 30, 40, 50]

    def line(n: int) -> str:
        text = (
            f"Iter {steps[n]}: Train loss {loss[n]:.3f}, Learning Rate {1.25e-5:.3e}, "
            f"It/sec {1.5 + n / 8:.3f}, Tokens/sec {512.25 + n:.3f}, "
            f"Trained Tokens {8192 * (n + 1)}, Peak mem 12.345 GB"
        )
        return text + (f"\nIter {steps[n]}: Val loss 2.875, Val took 3.512s" if n == 2 else "")

    values = {
        "Train loss": loss,
        "Learning Rate": [1.25e-5] * 5,
        "It/sec": [1.5, 1.625, 1.75, 1.875, 2.0],
        "Tokens/sec": [512.25, 513.25, 514.25, 515.25, 516.25],
        "Trained Tokens": [8192.0 * n for n in range(1, 6)],
    }
    return Sample(lines(5, line), steps, values)


@family
def torchtune() -> Sample:
    """Torchtune's DiskLogger and StdoutLogger: `Step 1 | loss:2.1 lr:… tokens_per_second…:…`."""
    loss, norm = column(1.6312, 0.05, 5, 6), column(0.7321, 0.04, 5, 6)

    def line(n: int) -> str:
        return (
            f"Step {n + 1} | loss:{loss[n]} lr:{2e-05 * (n + 1)} "
            f"tokens_per_second_per_gpu:{2150.5 + n} grad_norm:{norm[n]} "
        )

    values = {
        "loss": loss,
        "grad_norm": norm,
        "lr": [2e-05 * (n + 1) for n in range(5)],
        "tokens_per_second_per_gpu": [2150.5 + n for n in range(5)],
    }
    return Sample(lines(5, line), [1, 2, 3, 4, 5], values)
