"""A rank of fsdp_blocks_test.py: the training of tests/e2e/programs/parallel/fsdp_blocks.cpp by PyTorch's FSDP2. Each argument has
the words of one training, since importing PyTorch takes longer than all of it; what it prints follows a line `words WORD ...`."""
import dataclasses
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, HSDPMeshInfo, ShardPlacementResult
from torch.distributed.tensor import DTensor, Shard


def values_like(shape, seed):
    count = torch.Size(shape).numel()
    numbers = torch.arange(count, dtype=torch.double) * 0.37 + seed * 1.7
    return (numbers.sin() * 0.5).view(shape).float()


def initialise(module, seed):
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters(), 1):
            parameter.copy_(values_like(parameter.shape, seed + number))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(6, 10)
        self.down = nn.Linear(10, 6, bias=False)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


class BlockNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 6)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.out = nn.Linear(6, 3)
        for i, block in enumerate(self.blocks):
            initialise(block, 10 * i)
        initialise(self.inner, 100)
        initialise(self.out, 200)

    def forward(self, x):
        x = self.inner(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def options_of(words):
    size = dist.get_world_size()
    options = {}
    if "hsdp" in words:
        options["mesh"] = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("dp_replicate", "dp_shard"))
    elif "replicate" in words:
        options["mesh"] = init_device_mesh("cpu", (size, 1), mesh_dim_names=("dp_replicate", "dp_shard"))
    else:
        options["mesh"] = init_device_mesh("cpu", (size,))
    if "keep" in words:
        options["reshard_after_forward"] = False
    if "let_go" in words:
        options["reshard_after_forward"] = True
    if "pairs" in words:
        options["reshard_after_forward"] = 2
    options["mp_policy"] = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if "bf16" in words else None,
        reduce_dtype=torch.float32 if "float32_sums" in words else None,
    )
    if "columns" in words:
        options["shard_placement_fn"] = lambda parameter: Shard(1) if parameter.shape == (10, 6) else None
    if words & {"experts", "copied_experts"}:
        mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("dp_replicate", "dp_shard"))
        if "experts" in words:
            info = FSDPMeshInfo(mesh["dp_shard"], shard_mesh_dim=0)
        else:
            info = HSDPMeshInfo(mesh, shard_mesh_dim=1, replicate_mesh_dim=0)
        own = lambda parameter: parameter.shape == (6, 10)
        options["shard_placement_fn"] = lambda parameter: ShardPlacementResult(Shard(0), info) if own(parameter) else None
    return options


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def one_pass(model, words, rank, step):
    num_micro = 3 if words & {"accumulate", "reduce_only"} else 1
    losses = 0
    for micro in range(num_micro):
        is_last = micro == num_micro - 1
        if "accumulate" in words:
            model.set_requires_gradient_sync(is_last)
        if "reduce_only" in words:
            model.set_requires_all_reduce(is_last)
        seed = 10 * step + micro
        output = model(values_like((5, 4), 1000 + 10 * seed + rank))
        if "twice" in words:
            output = output + model(values_like((5, 4), 1000 + 10 * (seed + 5) + rank))
        loss = (output.float() - values_like((5, 3), 5000 + 10 * seed + rank)).square().mean()
        losses += loss.item()
        loss.backward()
    return losses


def train(words):
    net = BlockNet()
    options = options_of(words)
    if "list" in words:
        fully_shard([net.blocks[0], net.blocks[1]], **options)
        fully_shard(net.blocks[2], **options)
    else:
        for block in net.blocks:
            fully_shard(block, **options)
    if "float32_output" in words:
        options["mp_policy"] = dataclasses.replace(options["mp_policy"], output_dtype=torch.float32)
    model = fully_shard(net, **options)
    for module in [model, *net.blocks]:
        if "divide" in words:
            module.set_gradient_divide_factor(3)
        if "sums" in words:
            module.set_force_sum_reduction_for_comms(True)
        if "hook" in words:
            module.set_all_reduce_hook(lambda output: output.mul_(0.5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(12):
        loss = one_pass(model, words, dist.get_rank(), step)
        norm = 0
        if "clip" in words:
            norm = whole(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)).item()
        optimizer.step()
        optimizer.zero_grad()
        total = torch.tensor([loss], dtype=torch.double)
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"step {total.item():.9g} {norm:.9g}")
    modules = [net.inner, *net.blocks, net.out]
    values = [whole(parameter.detach()) for module in modules for parameter in module.parameters()]
    if dist.get_rank() == 0:
        for tensor in values:
            for value in tensor.flatten().tolist():
                print(f"value {value:.9g}")


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for text in sys.argv[1:]:
        if dist.get_rank() == 0:
            print(f"words {text}")
        train(set(text.split()))
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # the interpreter's own end may abort: see ddp_reference.py


if __name__ == "__main__":
    main()
