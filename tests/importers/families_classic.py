"""Logs of classic reinforcement learning as they are printed: tables, panels, single points."""

from __future__ import annotations

from tests.importers.families import FAMILIES, Sample, column, family, lines

__all__ = ["FAMILIES"]


@family
def garage() -> Sample:
    """garage with dowel: `simple` tables of names and numbers, messages with time stamps."""
    returns, loss = column(-5.3125, 1.25, 4), column(0.5125, 0.02, 4)

    def block(n: int) -> str:
        rule = f"{'-' * 32}  {'-' * 12}"
        rows: dict[str, float] = {
            "Evaluation/AverageReturn": returns[n],
            "Evaluation/Iteration": n,
            "Evaluation/NumEpisodes": 40 + n,
            "TotalEnvSteps": 4000 * (n + 1),
            "GaussianMLPPolicy/LossAfter": loss[n],
        }
        table = "\n".join(f"{key:<32}  {value}" for key, value in rows.items())
        return (
            f"2020-12-0{n + 1} 10:11:12 | [trpo_cartpole] epoch #{n} | Saving snapshot...\n"
            f"2020-12-0{n + 1} 10:11:13 | [trpo_cartpole] epoch #{n} | Time 1{n}.25 s\n"
            f"{rule}\n{table}\n{rule}"
        )

    values = {
        "Evaluation/AverageReturn": returns,
        "GaussianMLPPolicy/LossAfter": loss,
        "Evaluation/NumEpisodes": [40.0, 41.0, 42.0, 43.0],
    }
    return Sample(lines(4, block), [0, 1, 2, 3], values)


@family
def rlpyt() -> Sample:
    """rlpyt (after rllab) `dump_tabular`: each line of the table with a time stamp and a bar."""
    returns, norm = column(12.5, 1.125, 4), column(0.75, 0.0625, 4)

    def block(n: int) -> str:
        stamp = f"2019-10-0{n + 1} 10:11:12.123456  |"
        rows: dict[str, float] = {
            "Diagnostics/Iteration": n,
            "Diagnostics/CumSteps": 20000 * (n + 1),
        }
        rows |= {"ReturnAverage": returns[n], "gradNormAverage": norm[n], "lossAverage": 0.0125}
        table = "\n".join(f"{stamp} {key:<26}{value}" for key, value in rows.items())
        rule = f"2019-10-0{n + 1} 10:11:12.123456  {'-' * 24}  {'-' * 10}"
        return f"{stamp} itr #{n} Optimizing over 10 iterations.\n{table}\n{rule}"

    values = {"ReturnAverage": returns, "gradNormAverage": norm, "lossAverage": [0.0125] * 4}
    return Sample(lines(4, block), [0, 1, 2, 3], values)


@family
def cleanrl() -> Sample:
    """CleanRL: `global_step=1024, episodic_return=[21.]`, then `SPS: 812`."""
    returns, steps = column(21.5, 2.5, 5, 1), [1024, 2051, 3090, 4120, 5200]

    def line(n: int) -> str:
        shown = f"[{returns[n]}]" if n % 2 else f"{returns[n]}"
        return f"global_step={steps[n]}, episodic_return={shown}\nSPS: {812 + n}"

    values = {"episodic_return": returns, "SPS": [812.0, 813.0, 814.0, 815.0, 816.0]}
    return Sample(lines(5, line), steps, values)


@family
def cleanrl_points() -> Sample:
    """Scalars as `writer.add_scalar(tag, value, step)` has them, printed: `tag value step`."""
    loss, policy = column(0.5125, 0.02, 4), column(-0.0312, 0.004, 4)
    steps = [2048, 4096, 6144, 8192]

    def block(n: int) -> str:
        return (
            f"losses/value_loss {loss[n]} {steps[n]}\nlosses/policy_loss {policy[n]} {steps[n]}\n"
            f"losses/entropy 1.25 {steps[n]}\ncharts/SPS {812 + n} {steps[n]}"
        )

    values = {"losses/value_loss": loss, "losses/policy_loss": policy}
    values |= {"losses/entropy": [1.25] * 4, "charts/SPS": [812.0, 813.0, 814.0, 815.0]}
    return Sample(lines(4, block), steps, values)


@family
def stable_baselines3() -> Sample:
    """Stable-Baselines3 HumanOutputFormat: sections, indented names, cut off to fit."""
    reward, loss = column(21.5, 1.25, 4, 2), column(0.0312, 0.004, 4)

    def block(n: int) -> str:
        rule = "-" * 42
        rows = [
            ("rollout/", ""),
            ("   ep_len_mean", f"{235 + n}"),
            ("   ep_rew_mean", f"{reward[n]}"),
            ("time/", ""),
            ("   fps", f"{812 + n}"),
            ("   iterations", f"{n + 1}"),
            ("   total_timesteps", f"{2048 * (n + 1)}"),
            ("train/", ""),
            ("   approx_kl", "0.008046303"),
            ("   loss", f"{loss[n]}"),
        ]
        body = "\n".join(f"| {key:<24}| {value:<13}|" for key, value in rows)
        return f"{rule}\n{body}\n{rule}"

    values = {"rollout/ep_rew_mean": reward, "train/loss": loss}
    values |= {"train/approx_kl": [0.008046303] * 4, "time/fps": [812.0, 813.0, 814.0, 815.0]}
    return Sample(lines(4, block), [2048, 4096, 6144, 8192], values)


@family
def baselines() -> Sample:
    """OpenAI baselines logger: the same panel without sections; long names cut with `...`."""
    returns, critic = column(-412.5, 20.25, 4), column(1.125, 0.0625, 4)

    def block(n: int) -> str:
        rows: dict[str, float] = {"rollout/return": returns[n], "total/steps": 2000 * (n + 1)}
        rows |= {"train/loss_critic": critic[n], "train/loss_actor": -187.25, "total/epochs": n + 1}
        body = "\n".join(f"| {key:<24}| {value:<10} |" for key, value in rows.items())
        return f"{'-' * 40}\n{body}\n{'-' * 40}"

    values = {"rollout/return": returns, "train/loss_critic": critic}
    return Sample(
        lines(4, block),
        [2000, 4000, 6000, 8000],
        {**values, "train/loss_actor": [-187.25] * 4},
    )


@family
def lightning_bar() -> Sample:
    """Lightning's TQDMProgressBar: metrics behind the speed; the batch is the place in an epoch."""
    loss = column(0.7312, 0.0312, 4, 3)

    def line(n: int) -> str:
        return (
            f"Epoch {n}: 100%|██████████| 50/50 [00:1{n}<00:00,  4.5{n}it/s, v_num=3, "
            f"train_loss_step={loss[n]:.3f}, val_loss=0.81{n}, train_loss_epoch={loss[n]:.3f}]"
        )

    values = {"train_loss_step": loss, "val_loss": [0.81, 0.811, 0.812, 0.813]}
    return Sample(lines(4, line), [50, 100, 150, 200], values)


@family
def torchforge() -> Sample:
    """torchforge's console backend: a heading with the step, then a name and number per line."""
    reward, loss = column(0.5125, 0.02, 4), column(-0.0125, 0.003, 4, 6)

    def block(n: int) -> str:
        return (
            f"=== [global_logger_fF8h_r0] - METRICS STEP {n + 1} ===\n"
            f"  rl_trainer/loss: {loss[n]}\n  reward/evaluate_response/avg_total_reward: "
            f"{reward[n]}\n  main/rollout/std_advantage: 0.93125\n{'=' * 30}\n"
        )

    values = {
        "rl_trainer/loss": loss,
        "reward/evaluate_response/avg_total_reward": reward,
        "main/rollout/std_advantage": [0.93125] * 4,
    }
    return Sample(lines(4, block), [1, 2, 3, 4], values)


@family
def verl() -> Sample:
    """verl LocalLogger under Ray: `step:1 - key:value - …`."""
    loss, reward = column(0.0125, 0.002, 4, 3), column(0.4125, 0.03, 4, 3)

    def line(n: int) -> str:
        return (
            f"(TaskRunner pid=81{n}) step:{n + 1} - global_seqlen/mean:16842.5 - "
            f"actor/pg_loss:np.float64({loss[n]}) - actor/lr(1e-4):0.010 - "
            f"critic/score/mean:{reward[n]} - response_length/clip_ratio:0.0625"
        )

    values = {"actor/pg_loss": loss, "critic/score/mean": reward, "actor/lr": [1e-6] * 4}
    values |= {"response_length/clip_ratio": [0.0625] * 4}
    return Sample(lines(4, line), [1, 2, 3, 4], values)
