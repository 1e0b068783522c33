"""Logs as the frameworks of reinforcement learning and of fine-tuning print them."""

from __future__ import annotations

from tests.importers.families import FAMILIES, Sample, column, family, lines

__all__ = ["FAMILIES"]


@family
def litgpt() -> Sample:
    """litgpt/finetune: `Epoch 1 | iter 4 step 1 | loss train: …`; the step is the optimizer's."""
    loss = column(1.5852, 0.03, 5, 3)

    def line(n: int) -> str:
        return (
            f"Epoch 1 | iter {4 * (n + 1)} step {n + 1} | loss train: {loss[n]:.3f}, val: n/a | "
            f"iter time: {180.25 + n:.2f} ms (step) remaining time: 0:1{n}:23"
        )

    values = {"loss train": loss, "iter time": [0.18025 + n / 1000 for n in range(5)]}
    return Sample(lines(5, line), [1, 2, 3, 4, 5], values)


@family
def axolotl() -> Sample:
    """Axolotl: the Trainer's dicts glued to the progress bar, keys with units in brackets."""
    loss, norm = column(1.1312, 0.04, 6), column(0.4312, 0.02, 6)

    def block(n: int) -> str:
        bar = f"{(n + 1) * 10:3d}%|█▏        | {n + 1}/10 [00:0{n}<00:20,  2.02s/it]"
        row = (
            f"{{'loss': {loss[n]}, 'grad_norm': {norm[n]}, 'learning_rate': {2e-05 * (n + 1)}, "
            f"'memory/max_active (GiB)': 12.5, 'tokens_per_second_per_gpu': {1512.5 + n}, "
            f"'epoch': {round(0.1 * (n + 1), 2)}}}"
        )
        return f"\r{bar}\n                                            \n{row}\n\r{bar}"

    values = {
        "loss": loss,
        "grad_norm": norm,
        "memory/max_active (GiB)": [12.5] * 6,
        "tokens_per_second_per_gpu": [1512.5 + n for n in range(6)],
    }
    return Sample(lines(6, block), [1, 2, 3, 4, 5, 6], values)


@family
def open_instruct() -> Sample:
    """open_instruct/rl_utils.py `print_rich_single_line_metrics`: a panel, a group per line."""
    policy, kl = column(0.0312, 0.004, 4), column(0.2512, 0.01, 4)
    score = column(3.1250, 0.25, 4)

    def block(n: int) -> str:
        groups = [
            ("loss", f"policy_avg: {policy[n]:.4f} | total_avg: {policy[n] * 2:.4f}"),
            ("objective", f"kl_avg: {kl[n]:.4f} | scores: {score[n]:.4f} | verifiable: 0.50"),
            ("other", f"episode: {512 * (n + 1)} | training_step: {n + 1} | epoch: 0.25"),
        ]
        rows = "\n".join(f"│  {name:<10} {text:<70}│" for name, text in groups)
        return f"╭{' Metrics ':─^84}╮\n{rows}\n╰{'─' * 84}╯"

    values = {"loss/policy_avg": policy, "objective/kl_avg": kl, "objective/scores": score}
    return Sample(lines(4, block), [1, 2, 3, 4], values)


@family
def prime_rl() -> Sample:
    """prime-rl's loguru line: names with points and blanks, numbers with units."""
    loss, entropy = column(0.0123, 0.001, 5), column(0.3121, 0.01, 5)
    mismatch, norm = column(0.0004, 0.0001, 5), column(0.1721, 0.01, 5)

    def line(n: int) -> str:
        return (
            f"21:14:0{n} SUCCESS Step {n} |   41.2{n}s | Loss {loss[n]:.4f} | Entropy "
            f"{entropy[n]:.4f} | Mismatch KL {mismatch[n]:.4f} | Grad. Norm {norm[n]:.4f} | LR "
            f"1.25e-06 | Throughput {20713 + n} tokens/s | MFU 31.{n}% | Peak Mem. 62.1 GiB"
        )

    values = {
        "Loss": loss,
        "Entropy": entropy,
        "Mismatch KL": mismatch,
        "Grad. Norm": norm,
        "LR": [1.25e-06] * 5,
        "Throughput": [20713.0 + n for n in range(5)],
        "MFU": [0.31 + n / 1000 for n in range(5)],
    }
    return Sample(lines(5, line), [0, 1, 2, 3, 4], values)


@family
def slime() -> Sample:
    """slime: `rollout 3: {…}` of the rollouts, `step 3: {…}` of the training."""
    loss, norm = column(0.0112, 0.003, 5, 6), column(0.8312, 0.02, 5, 6)
    reward = column(0.4375, 0.03, 5)

    def block(n: int) -> str:
        stamp = f"(MegatronTrainRayActor pid=412{n}) [2025-09-0{n + 1} 11:12:13] "
        return (
            f"{stamp}data.py:127 - rollout {n}: {{'rollout/raw_reward': {reward[n]}, "
            f"'rollout/response_lengths': {812.25 + n}, 'rollout/truncated': 0.0625}}\n"
            f"{stamp}model.py:512 - step {n}: {{'train/loss': {loss[n]}, 'train/pg_clipfrac': "
            f"0.0, 'train/grad_norm': {norm[n]}, 'train/lr-pg_0': 1e-06}}"
        )

    values = {
        "rollout/raw_reward": reward,
        "rollout/response_lengths": [812.25 + n for n in range(5)],
        "train/loss": loss,
        "train/grad_norm": norm,
    }
    return Sample(lines(5, block), [0, 1, 2, 3, 4], values)


@family
def ms_swift() -> Sample:
    """ms-swift's callbacks: times and places in words among the numbers of a dict."""
    loss, reward = column(0.0123, 0.004, 5, 6), column(0.5125, 0.02, 5)
    steps = [5, 10, 15, 20, 25]

    def line(n: int) -> str:
        return (
            f"{{'loss': {loss[n]}, 'grad_norm': 0.4{n}, 'learning_rate': 1e-06, "
            f"'memory(GiB)': 61.25, 'train_speed(iter/s)': 0.03125, 'completions/mean_length': "
            f"{212.5 + n}, 'reward': {reward[n]}, 'epoch': 0.0{n + 1}, "
            f"'global_step/max_steps': '{steps[n]}/3766', 'percentage': '0.{n + 1}3%', "
            f"'elapsed_time': '1h {n + 1}m 35s', 'remaining_time': '1d 3h 2m 1s'}}"
        )

    values = {
        "loss": loss,
        "reward": reward,
        "completions/mean_length": [212.5 + n for n in range(5)],
        "memory(GiB)": [61.25] * 5,
        "train_speed(iter/s)": [0.03125] * 5,
    }
    return Sample(lines(5, line), steps, values)


@family
def llama_factory() -> Sample:
    """LLaMA-Factory: its callback's line of few digits, then the Trainer's dict of all."""
    loss, steps = column(1.2312, 0.02, 4), [5, 10, 15, 20]

    def block(n: int) -> str:
        bar = f" {steps[n]}%|▌         | {steps[n]}/100 [00:1{n}<03:12,  2.1{n}s/it]"
        return (
            f"\r{bar}[INFO|2025-03-0{n + 1} 10:11:12] llamafactory.train.callbacks:143 >> "
            f"{{'loss': {loss[n]}, 'learning_rate': 4.9000e-05, 'epoch': 0.{n + 1}, "
            f"'throughput': {812.25 + n}}}\n{{'loss': {loss[n]}, 'grad_norm': 0.5{n}1, "
            f"'learning_rate': 4.9e-05, 'epoch': 0.{n + 1}}}\n"
        )

    values = {"loss": loss, "grad_norm": [0.501 + n / 100 for n in range(4)]}
    return Sample(lines(4, block), steps, values)


@family
def rlinf() -> Sample:
    """RLinf metric_utils.py `print_metrics_table`: `name=value`, three to a line, sections."""
    norm, success = column(1.312, 0.05, 4, 3), column(0.512, 0.02, 4, 3)
    loss = column(-0.012, 0.001, 4, 3)

    def section(title: str) -> str:
        return f"├{f' {title} ':─^118}┤"

    def cells(*texts: str) -> str:
        return "│" + "│".join(f"{text:<38}" for text in texts) + "│"

    def block(n: int) -> str:
        blank = f"│{' ' * 118}│"
        bar = "█" * n + "░" * (40 - n)
        head = (
            f"│ Global Step: {n + 1:4d}/1000 │ Progress: {bar} │ {(n + 1) / 10:5.1f}%".ljust(118)
            + " │\n"
            + f"│ Elapsed: 0{n}:12 │ ETA: 01:0{n}:12 │ Step Time: 12.31{n}s".ljust(118)
            + " │"
        )
        parts = [
            f"\n╭{'─' * 118}╮",
            section("Metric Table"),
            head,
            section("Time"),
            blank,
            cells(f"actor_training=4.12{n}", f"rollout=7.5{n}1", f"step=12.3{n}1"),
            blank,
            section("Environment"),
            blank,
            cells(f"episode_len=80.0{n}0", f"success_once={success[n]:.3f}", ""),
            blank,
            section("Training/Actor"),
            blank,
            cells(f"actor/grad_norm={norm[n]:.3f}", "actor/lr=1.25e-06", f"actor/loss={loss[n]}"),
            blank,
            f"╰{'─' * 118}╯\n",
        ]
        return "\n".join(parts)

    values = {
        "actor/grad_norm": norm,
        "success_once": success,
        "actor/loss": loss,
        "actor/lr": [1.25e-06] * 4,
    }
    return Sample(lines(4, block), [1, 2, 3, 4], values)


@family
def dreamer() -> Sample:
    """DreamerV3, elements/logger.py TerminalOutput: names and numbers between slashes."""
    score, loss = column(112.5, 10.25, 4, 2), column(3.25, 0.125, 4, 2)
    steps = [1040, 2080, 3120, 4160]

    def block(n: int) -> str:
        return (
            f"{'-' * 20}[Step {steps[n]}]{'-' * 20}\n"
            f"episode/score {score[n]:g} / episode/length 50{n} / train/loss/image {loss[n]:g} / "
            f"train/opt/loss 6.1e-3 / train/rand/action 0 / replay/items 1.2e5 / fps/policy 41.{n}"
        )

    values = {
        "episode/score": score,
        "episode/length": [500.0, 501.0, 502.0, 503.0],
        "train/loss/image": loss,
        "train/opt/loss": [6.1e-3] * 4,
        "replay/items": [1.2e5] * 4,
    }
    return Sample(lines(4, block), steps, values)


@family
def dreamer_v2() -> Sample:
    """DreamerV2 common/logger.py: `[1000] kl_loss 3.1 / model_loss 512.0 / fps 11.1`."""
    loss, returns = column(512.5, 20.5, 4, 1), column(112.5, 3.5, 4, 1)
    steps = [2000, 3000, 4000, 5000]

    def line(n: int) -> str:
        return (
            f"[{steps[n]}] kl_loss 3.{n} / model_loss {loss[n]:.1f} / train_return "
            f"{returns[n]:.1f} / train_length 500.0 / fps 11.{n}"
        )

    values = {"model_loss": loss, "train_return": returns, "kl_loss": [3.0, 3.1, 3.2, 3.3]}
    return Sample(lines(4, line), steps, values)


@family
def areal() -> Sample:
    """AReaL stats_logger: a `fancy_grid` of name, number, name, number under its step."""
    reward, norm = column(-2.512, 0.25, 4), column(0.4312, 0.02, 4)

    def block(n: int) -> str:
        cells = [
            ("ppo_actor/final_reward/avg", reward[n]),
            ("ppo_actor/update/grad_norm", norm[n]),
            ("ppo_actor/update/lr", 1.25e-5),
            ("ppo_actor/seq_len/avg", 812.5 + n),
        ]
        shown = [f" {key:<28} │ {value: .4e} " for key, value in cells]
        rule = f"{'─' * 30}┼{'─' * 13}"
        return (
            f"2025090{n + 1}-11:12:13.412 StatsLogger INFO: Epoch 1/10 Step {n + 1}/120 Train step "
            f"{n + 1}/1200 done.\n2025090{n + 1}-11:12:13.413 StatsLogger INFO: Stats (1/1):\n"
            f"╒{rule}╤{rule}╕\n│{shown[0]}│{shown[1]}│\n├{rule}┼{rule}┤\n"
            f"│{shown[2]}│{shown[3]}│\n╘{rule}╧{rule}╛"
        )

    values = {
        "ppo_actor/final_reward/avg": reward,
        "ppo_actor/update/grad_norm": norm,
        "ppo_actor/seq_len/avg": [812.5 + n for n in range(4)],
    }
    return Sample(lines(4, block), [1, 2, 3, 4], values)


@family
def ml_agents() -> Sample:
    """ML-Agents StatsReporter: sentences with a point after each number."""
    reward, std = column(1.213, 0.125, 5, 3), column(0.733, 0.031, 5, 3)
    steps = [12000, 24000, 36000, 48000, 60000]

    def line(n: int) -> str:
        return (
            f"[INFO] 3DBall. Step: {steps[n]}. Time Elapsed: {29.214 + n:.3f} s. Mean Reward: "
            f"{reward[n]:.3f}. Std of Reward: {std[n]:.3f}. Training."
        )

    return Sample(lines(5, line), steps, {"Mean Reward": reward, "Std of Reward": std})


@family
def rllib() -> Sample:
    """RLlib: `pretty_print(result)`, YAML with the learner's numbers nested."""
    reward, loss = column(21.5, 3.25, 4, 2), column(7.125, 0.5, 4)

    def block(n: int) -> str:
        return (
            f"Result for PPO_CartPole-v1_3f1a2_0000{n}:\n"
            f"  agent_timesteps_total: {4000 * (n + 1)}\n  custom_metrics: {{}}\n"
            f"  date: 2023-01-0{n + 1}_10-11-12\n  done: false\n"
            f"  episode_len_mean: {21.5 + n}\n  episode_media: {{}}\n"
            f"  episode_reward_mean: {reward[n]}\n  experiment_id: 5f1be3a2\n  info:\n"
            f"    learner:\n      default_policy:\n        learner_stats:\n"
            f"          entropy: {round(0.66 - n / 50, 4)}\n          kl: 0.0{n + 1}25\n"
            f"          total_loss: {loss[n]}\n    num_env_steps_trained: {4000 * (n + 1)}\n"
            f"  hostname: node-3\n  pid: 41{n}\n  timesteps_total: {4000 * (n + 1)}\n"
            f"  training_iteration: {n + 1}\n  "
        )

    stats = "info/learner/default_policy/learner_stats"
    values = {"episode_reward_mean": reward, f"{stats}/total_loss": loss}
    values[f"{stats}/kl"] = [0.0125, 0.0225, 0.0325, 0.0425]
    values[f"{stats}/entropy"] = [0.66, 0.64, 0.62, 0.6]
    return Sample(lines(4, block), [1, 2, 3, 4], values)
