"""PPO in one file, as CleanRL writes it, logging to TensorBoard."""

import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import outcome
import torch
from torch import nn
from torch.distributions.categorical import Categorical
from torch.utils.tensorboard import SummaryWriter

outcome.seed(1)
NUM_STEPS, UPDATES = 64, 6
writer = SummaryWriter("runs/CartPole-v1__ppo__1")
writer.add_text("hyperparameters", "|param|value|\n|-|-|\n|num_steps|64|")
env = gym.wrappers.RecordEpisodeStatistics(gym.make("CartPole-v1"))


def layer(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs)


critic = nn.Sequential(layer(4, 32), nn.Tanh(), layer(32, 1))
actor = nn.Sequential(layer(4, 32), nn.Tanh(), layer(32, 2))
parameters = [*actor.parameters(), *critic.parameters()]
optimizer = torch.optim.Adam(parameters, lr=2.5e-3, eps=1e-5)
observation = torch.tensor(env.reset(seed=1)[0])
global_step, started = 0, time.time()
for update in range(1, UPDATES + 1):
    optimizer.param_groups[0]["lr"] = (1 - (update - 1) / UPDATES) * 2.5e-3
    seen, actions, logprobs, rewards, dones, values = [], [], [], [], [], []
    for _ in range(NUM_STEPS):
        global_step += 1
        with torch.no_grad():
            policy = Categorical(logits=actor(observation))
            action = policy.sample()
            values.append(critic(observation).squeeze())
        seen.append(observation)
        actions.append(action)
        logprobs.append(policy.log_prob(action))
        after, reward, terminated, truncated, info = env.step(action.item())
        rewards.append(reward)
        dones.append(terminated or truncated)
        observation = torch.tensor(after)
        if dones[-1]:
            writer.add_scalar("charts/episodic_return", info["episode"]["r"], global_step)
            writer.add_scalar("charts/episodic_length", info["episode"]["l"], global_step)
            observation = torch.tensor(env.reset()[0])
    returns = torch.zeros(NUM_STEPS)
    following = critic(observation).item()
    for place in reversed(range(NUM_STEPS)):
        following = rewards[place] + 0.99 * following * (not dones[place])
        returns[place] = following
    advantages = returns - torch.stack(values)
    states, chosen, old = torch.stack(seen), torch.stack(actions), torch.stack(logprobs)
    for _ in range(4):
        policy = Categorical(logits=actor(states))
        ratio = (policy.log_prob(chosen) - old).exp()
        logratio = ratio.log()
        with torch.no_grad():
            old_approx_kl = (-logratio).mean()
            approx_kl = ((ratio - 1) - logratio).mean()
            clipped = ((ratio - 1).abs() > 0.2).float().mean().item()
        normal = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy_loss = torch.max(-normal * ratio, -normal * ratio.clamp(0.8, 1.2)).mean()
        value_loss = 0.5 * ((critic(states).squeeze() - returns) ** 2).mean()
        entropy = policy.entropy().mean()
        loss = policy_loss - 0.01 * entropy + 0.5 * value_loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
    predicted, true = torch.stack(values).numpy(), returns.numpy()
    explained = 1 - np.var(true - predicted) / np.var(true)
    writer.add_scalar("charts/learning_rate", optimizer.param_groups[0]["lr"], global_step)
    writer.add_scalar("losses/value_loss", value_loss.item(), global_step)
    writer.add_scalar("losses/policy_loss", policy_loss.item(), global_step)
    writer.add_scalar("losses/entropy", entropy.item(), global_step)
    writer.add_scalar("losses/old_approx_kl", old_approx_kl.item(), global_step)
    writer.add_scalar("losses/approx_kl", approx_kl.item(), global_step)
    writer.add_scalar("losses/clipfrac", clipped, global_step)
    writer.add_scalar("losses/explained_variance", explained, global_step)
    writer.add_scalar("charts/SPS", int(global_step / (time.time() - started)), global_step)
env.close()
writer.close()
stored = outcome.events(Path("runs/CartPole-v1__ppo__1"))
weights = {f"actor.{n}": p for n, p in actor.state_dict().items()}
weights |= {f"critic.{n}": p for n, p in critic.state_dict().items()}
outcome.write(sys.argv[1], stored, outcome.digest(weights))
