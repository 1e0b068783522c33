"""Accelerate with a tracker; with `accelerate launch`, in two processes as well."""

import sys
from pathlib import Path

import outcome
import torch
from accelerate import Accelerator

outcome.seed(2)
accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir="logs")
accelerator.init_trackers("one", config={"lr": 0.05})
inputs = torch.randn(96, 4)
data = torch.utils.data.TensorDataset(inputs, inputs.sum(dim=1))
layer = torch.nn.Linear(4, 1)
model, optimizer, loader = accelerator.prepare(
    layer,
    torch.optim.SGD(layer.parameters(), lr=0.05),
    torch.utils.data.DataLoader(data, batch_size=4, shuffle=True),
)
for step, (x, y) in enumerate(loader):
    loss = ((model(x).squeeze(-1) - y) ** 2).mean()
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    mean = accelerator.gather(loss.detach().reshape(1)).mean()
    accelerator.log({"train/loss": mean.item(), "train/lr": 0.05}, step=step)
accelerator.end_training()
if accelerator.is_main_process:
    state = outcome.digest(dict(accelerator.unwrap_model(model).state_dict()))
    outcome.write(sys.argv[1], outcome.events(Path("logs/one")), state)
