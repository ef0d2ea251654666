"""fsdp_tensor_python_rank.py RESULT: what programs/parallel/fsdp_tensor_rank.cpp computes, by PyTorch's parallelize_module and
fully_shard."""
import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import loss_parallel, parallelize_module

from tensor_plan_python_rank import POSITIONS, WORDS, PlanNet, plan

warnings.simplefilter("ignore")
results = {}


def keep(name, tensor):
    results[name] = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach().contiguous().clone()


def clip(parameters):
    """torch's clip_grad_norm_ does not take gradients on several meshes, as the norms' are where tokens are whole."""
    gradients = [parameter.grad for parameter in parameters]
    norm = torch.stack([gradient.full_tensor().norm() for gradient in gradients]).norm()
    if all(gradient.device_mesh.ndim == 2 for gradient in gradients):
        by_torch = torch.nn.utils.clip_grad_norm_(parameters, 0.5, foreach=False).full_tensor()
        torch.testing.assert_close(by_torch, norm)
        return by_torch
    for gradient in gradients:
        gradient.to_local().mul_(torch.clamp(0.5 / (norm + 1e-6), max=1.0))
    return norm


def run(name, mesh, cut=Replicate(), words=WORDS, passes=1):
    net = PlanNet(words)
    with torch.no_grad():
        for seed, parameter in enumerate(net.parameters(), 1):
            drawn = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).float()
            parameter.copy_(drawn * 0.2)
    parallelize_module(net, mesh["tp"], plan(cut))
    for layer in (net.query, net.up, net.down):
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(net, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(net.parameters(), 0.01, eps=1e-4, foreach=False)
    for step in range(3):
        optimizer.zero_grad()
        for number in range(passes):
            net.set_requires_gradient_sync(number == passes - 1)
            tokens = (torch.arange(3 * (POSITIONS + 1)) * 7).remainder(words).view(3, POSITIONS + 1)
            tokens = (tokens + 5 * step + 3 * number + mesh.get_local_rank("dp")).remainder(words)
            logits = net(tokens[:, :POSITIONS])
            with loss_parallel():
                loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].reshape(-1))
                loss.backward()
            keep(f"{name}.loss{step}{number}", loss)
        keep(f"{name}.norm{step}", clip(list(net.parameters())))
        optimizer.step()
    for key, parameter in net.named_parameters():
        keep(f"{name}.{key}", parameter)
        keep(f"{name}.{key}.grad", parameter.grad)


def main(result):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    run("tensor", mesh)
    run("uneven", mesh, words=22)
    run("sequence", mesh, cut=Shard(1))
    run("passes", mesh, cut=Shard(1), passes=2)
    save_file(results, result)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(os.fspath(sys.argv[1]))
