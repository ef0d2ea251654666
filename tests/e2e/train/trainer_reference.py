"""What tests/e2e/programs/train/trainer_program.cpp does, in Python: trainer_reference.py STRATEGY PRECISION ACCUMULATION FROM OUT. As
a module it writes FROM."""
import contextlib
import os
import sys

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = torch.nn.Linear(20, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 5)
        self.norm = torch.nn.LayerNorm(64)

    def forward(self, x):
        return self.third(torch.relu(self.norm(self.second(torch.relu(self.first(x))))))


def write_source(path):
    """Weights, and data of 26 batches of 4 on each of two ranks, the last not full; 51 on one."""
    torch.manual_seed(2)
    x = torch.randn(203, 20)
    y = (x[:, :5] + x[:, 5:10]).argmax(1)
    torch.save({"model": Net().state_dict(), "x": x, "y": y}, path)


def main(strategy, precision, accumulation, source, out):
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if size > 1:
        dist.init_process_group("gloo")
    state = torch.load(source)
    net = Net()
    net.load_state_dict(state["model"])
    if precision == "bf16":
        net.to(torch.bfloat16)
    model = net
    if strategy == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(net)
    if strategy == "fsdp":
        model = fully_shard(net)
    # The fused kernel of 2.13 is wrong for 16-bit numbers on the CPU.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=strategy != "fsdp" and precision != "bf16")
    data = TensorDataset(state["x"], state["y"])
    sampler = DistributedSampler(data, size, rank, seed=0)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    autocast = torch.autocast("cpu", torch.bfloat16) if precision == "bf16-mixed" else contextlib.nullcontext()
    losses = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader, 1):
            is_step = number % accumulation == 0 or number == len(loader)
            if precision == "bf16":
                x = x.to(torch.bfloat16)
            if strategy == "fsdp":
                model.set_requires_gradient_sync(is_step)
            local = model.no_sync() if strategy == "ddp" and not is_step else contextlib.nullcontext()
            with local:
                with autocast:
                    loss = torch.nn.functional.cross_entropy(model(x), y)
                (loss / accumulation).backward()
            losses.append(float(loss.detach()))
            if is_step:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    save_file({"losses": torch.tensor(losses, dtype=torch.float64)}, f"{out}.{rank}")
    if size > 1:
        dist.destroy_process_group()
        os._exit(0)  # the interpreter's own end may abort: see ddp_reference.py


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
