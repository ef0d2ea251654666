"""tensor_plan_python_rank.py RESULT: what programs/parallel/tensor_plan_rank.cpp computes, by PyTorch's parallelize_module."""
import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module

warnings.simplefilter("ignore")
WORDS, WIDTH, HEAD_SIZE, POSITIONS = 24, 16, 4, 8
results = {}


def keep(name, tensor):
    results[name] = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach().contiguous().clone()


class PlanNet(nn.Module):
    def __init__(self, words=WORDS):
        super().__init__()
        self.embedding = nn.Embedding(words, WIDTH)
        self.norm1 = nn.LayerNorm(WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, words, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        y = self.norm1(x)
        heads = [layer(y).unflatten(-1, (-1, HEAD_SIZE)).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        y = F.scaled_dot_product_attention(*heads, is_causal=True)
        z = x + self.output(y.transpose(1, 2).flatten(2))
        return self.head(z + self.down(F.gelu(self.up(self.norm2(z)))))


def plan(cut):
    inside = {name: ColwiseParallel(input_layouts=cut) for name in ("query", "key", "value", "up")}
    after = {name: RowwiseParallel(output_layouts=cut) for name in ("output", "down")}
    norms = {name: SequenceParallel(use_local_output=True) for name in ("norm1", "norm2")} if cut == Shard(1) else {}
    return inside | after | norms | {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=cut),
        "head": ColwiseParallel(input_layouts=cut, use_local_output=False)}


def run(name, cut, mesh):
    net = PlanNet()
    with torch.no_grad():
        for seed, parameter in enumerate(net.parameters(), 1):
            drawn = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).float()
            parameter.copy_(drawn * 0.2)
    parallelize_module(net, mesh, plan(cut))
    optimizer = torch.optim.SGD(net.parameters(), 0.1, foreach=False)
    tokens = (torch.arange(3 * (POSITIONS + 1)) * 7).remainder(WORDS).view(3, POSITIONS + 1)
    for step in range(3):
        optimizer.zero_grad()
        logits = net(tokens[:, :POSITIONS])
        with loss_parallel():
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].reshape(-1))
            loss.backward()
        keep(f"{name}.loss{step}", loss)
        optimizer.step()
    for key, parameter in net.named_parameters():
        keep(f"{name}.{key}", parameter)
        gradient = parameter.grad
        if isinstance(gradient, DTensor):
            gradient = gradient.redistribute(placements=parameter.placements)
        keep(f"{name}.{key}.grad", gradient)


def main(result):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    run("tensor", Replicate(), mesh)
    run("sequence", Shard(1), mesh)
    save_file(results, result)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(os.fspath(sys.argv[1]))
