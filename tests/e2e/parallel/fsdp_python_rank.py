"""A rank of fsdp_test.py: the training of tests/e2e/programs/parallel/fsdp_train.cpp by PyTorch's FSDP2. As a module it writes the
weights that both begin with."""
import os
import sys

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

STEPS = 20


def write_weights(path):
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(7, 13), nn.Tanh(), nn.Linear(13, 5), nn.Tanh(), nn.Linear(5, 3))
    save_file(net.state_dict(), path)


def numbers(rows, columns, seed):
    values = torch.arange(rows * columns, dtype=torch.double) * 0.37 + seed * 1.7
    return values.sin().view(rows, columns).float()


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    words = set(sys.argv[2:])
    sizes = [7, 13, 5, 3]
    layers = [nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]
    net = nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])
    net.load_state_dict(load_file(sys.argv[1]))
    if "frozen" in words:
        layers[1].weight.requires_grad_(False)
    model = fully_shard(net)
    if "nested" in words:
        model = fully_shard(nn.Sequential(net, nn.Identity()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    rank = dist.get_rank()
    num_micro = 3 if "accumulate" in words else 1
    for step in range(STEPS):
        losses = 0
        for micro in range(num_micro):
            model.set_requires_gradient_sync(micro == num_micro - 1)
            seed = 1000 * step + 10 * rank + micro
            loss = (model(numbers(4, 7, seed)) - numbers(4, 3, seed + 5)).square().mean()
            losses += loss.item()
            loss.backward()
        norm = 0
        if "clip" in words:
            norm = whole(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)).item()
        optimizer.step()
        optimizer.zero_grad()
        total = torch.tensor([losses], dtype=torch.double)
        dist.all_reduce(total)
        if rank == 0:
            print(f"step {total.item():.9g} {norm:.9g}")
    values = [whole(parameter.detach()) for parameter in net.parameters()]
    if rank == 0:
        for tensor in values:
            for value in tensor.flatten().tolist():
                print(f"value {value:.9g}")
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # the interpreter's own end may abort: see ddp_reference.py


if __name__ == "__main__":
    main()
