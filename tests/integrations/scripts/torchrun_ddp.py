"""DistributedDataParallel in the processes of torchrun; the first one logs to TensorBoard."""

import sys
from pathlib import Path

import outcome
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.tensorboard import SummaryWriter

outcome.seed(2)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(6)
layer = torch.nn.Linear(4, 1)
model = DistributedDataParallel(layer)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
writer = SummaryWriter("runs") if rank == 0 else None
torch.manual_seed(60 + rank)
for step in range(24):
    inputs = torch.randn(8, 4)
    loss = ((model(inputs).squeeze(-1) - inputs.sum(dim=1)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if writer is not None:
        writer.add_scalar("train/loss", mean.item() / dist.get_world_size(), step)
        writer.add_scalar("train/lr", 0.05, step)
if writer is not None:
    writer.close()
    outcome.write(
        sys.argv[1], outcome.events(Path("runs")), outcome.digest(dict(layer.state_dict()))
    )
dist.destroy_process_group()
