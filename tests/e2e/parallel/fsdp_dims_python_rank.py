"""fsdp_dims_python_rank.py RESULT: what programs/parallel/fsdp_dims_rank.cpp computes, by PyTorch's fully_shard with dp_mesh_dims."""
import os
import sys
import warnings

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import DataParallelMeshDims, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor

warnings.simplefilter("ignore")
results = {}
IN = 6


def drawn(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).float()


def keep(name, tensor):
    results[name] = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach().contiguous().clone()


class Net(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = torch.nn.LayerNorm(IN)
        self.up = torch.nn.Linear(IN, hidden)
        self.down = torch.nn.Linear(hidden, IN)

    def forward(self, x):
        return self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


LAYOUTS = {"up.weight": Shard(0), "up.bias": Shard(0), "down.weight": Shard(1)}


def partition(name, module, mesh):
    for key, parameter in list(module.named_parameters(recurse=False)):
        placements = [Replicate(), LAYOUTS.get(f"{name}.{key}", Replicate())]
        module.register_parameter(key, torch.nn.Parameter(distribute_tensor(parameter.data, mesh, placements)))


def run(name, mesh, dims, hidden=8, passes=1):
    net = Net(hidden)
    with torch.no_grad():
        for seed, parameter in enumerate(net.parameters(), 1):
            parameter.copy_(drawn(parameter.shape, seed) * 0.5)
    distribute_module(net, mesh, partition)
    fully_shard(net, mesh=mesh, dp_mesh_dims=dims)
    optimizer = torch.optim.AdamW(net.parameters(), 0.01, eps=1e-4, foreach=False)
    for step in range(3):
        optimizer.zero_grad()
        for number in range(passes):
            net.set_requires_gradient_sync(number == passes - 1)
            x = distribute_tensor(drawn((5, IN), 100 + 10 * step + number), mesh, [Shard(0), Replicate()])
            loss = (net(x) - x).square().mean()
            loss.backward()
            keep(f"{name}.loss{step}{number}", loss.full_tensor())
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1, foreach=False)
        keep(f"{name}.norm{step}", norm.full_tensor() if isinstance(norm, DTensor) else norm)
        optimizer.step()
    for key, parameter in net.named_parameters():
        keep(f"{name}.{key}", parameter)
        keep(f"{name}.{key}.grad", parameter.grad)
        keep(f"{name}.{key}.whole", parameter.full_tensor())


def main(result):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    run("shard", mesh, DataParallelMeshDims(shard="dp"))
    run("uneven", mesh, DataParallelMeshDims(shard="dp"), hidden=6)
    run("passes", mesh, DataParallelMeshDims(shard="dp"), passes=2)
    run("replicate", mesh, DataParallelMeshDims(replicate="dp"))
    save_file(results, result)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(os.fspath(sys.argv[1]))
