"""zero_python_rank.py RESULT: the calls of programs/parallel/zero_rank.cpp, made by PyTorch."""
import os
import sys
import warnings

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

warnings.simplefilter("ignore")
STEPS = 10
KINDS = {
    "sgd": (torch.optim.SGD, dict(lr=0.05, momentum=0.9)),
    "adam": (torch.optim.Adam, dict(lr=0.01, weight_decay=0.1)),
    "adamw": (torch.optim.AdamW, dict(lr=0.01, weight_decay=0.2)),
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(6, 10), nn.Linear(10, 7), nn.Linear(7, 3)
        with torch.no_grad():
            for i, parameter in enumerate(self.parameters()):
                parameter.copy_(numbers(i + 1, parameter.shape) * 0.3)

    def forward(self, x):
        return self.third(torch.tanh(self.second(torch.tanh(self.first(x)))))


def numbers(seed, shape):
    torch.manual_seed(seed)
    return torch.randn(shape)


def train(results, name, group, views, kind, options):
    ddp = DistributedDataParallel(Net(), process_group=group)
    groups = [[p for p in ddp.parameters() if p.dim() != 1], [p for p in ddp.parameters() if p.dim() == 1]]
    zero = ZeroRedundancyOptimizer([{"params": groups[0]}, {"params": groups[1], "lr": options["lr"] * 3}], kind,
                                   process_group=group, parameters_as_bucket_view=views, **options)
    rank = dist.get_rank(group)
    for step in range(STEPS):
        zero.zero_grad()
        output = ddp(numbers(1000 * step + rank, (5, 6)))
        nn.functional.mse_loss(output, numbers(1000 * step + 500 + rank, (5, 3))).backward()
        zero.step()
        if step + 1 == STEPS // 2:
            zero.param_groups[0]["lr"] = options["lr"] / 2

    parameters = groups[0] + groups[1]
    for i, parameter in enumerate(parameters):
        results[f"{name}.value.{i}"] = parameter.detach().clone()
        results[f"{name}.owner.{i}"] = torch.tensor(zero._param_to_rank[parameter])
    last = dist.get_world_size(group) - 1
    zero.consolidate_state_dict(last)
    if rank != last:
        return
    for i, state in zero.state_dict()["state"].items():
        results.update({f"{name}.state.{i}.{key}": value.clone() for key, value in state.items()})


def main(result):
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    results = {}
    for size in range(1, world + 1):
        group = dist.new_group(range(world - size, world))
        if dist.get_rank() < world - size:
            continue
        for views in (False, True):
            for kind, (optimizer, options) in KINDS.items():
                train(results, f"{kind}.{size}.{'views' if views else 'separate'}", group, views, optimizer, options)
    save_file({name: tensor.contiguous() for name, tensor in results.items()}, result)
    dist.destroy_process_group()
    os._exit(0)  # the interpreter's own end may abort: see ddp_reference.py


if __name__ == "__main__":
    main(*sys.argv[1:])
