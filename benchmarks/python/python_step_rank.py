"""A rank of the question "python", on one backend. Like a user's program, it calls only torch.distributed.

Arguments: the backend, the rank, the pipe that commands come from, an init method. Cases: see CASES.
"""
import pathlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from training_rank import Trainee, answer_commands, leave, make_mlp, set_weights  # noqa: E402

WORLD_SIZE = 2
WIDTH = 1024
HEAD_SIZE = 64


class Block(nn.Module):
    """A transformer block. Each rank may have only some of the heads."""

    def __init__(self, width=WIDTH):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm1(x)
        heads = [layer(y).unflatten(-1, (-1, HEAD_SIZE)).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.output(y.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def random_batch(seed, *sizes):
    torch.manual_seed(seed)
    return torch.randn(*sizes), torch.randn(*sizes)


def own_gradients(_, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def ddp(net, inputs, outputs):
    set_weights(net)
    torch.manual_seed(100 + dist.get_rank())
    batch = torch.randn(32, inputs), torch.randn(32, outputs)
    net = DistributedDataParallel(net)
    # DDP does not accept the result of fake's all-reduce, which is None.
    if dist.get_backend() == "fake":
        net.register_comm_hook(None, own_gradients)
    return Trainee(net, batch)


def fsdp(num_tokens):
    block = Block()
    set_weights(block)
    mesh = init_device_mesh("cpu", (WORLD_SIZE,))
    fully_shard(block, mesh=mesh, reshard_after_forward=True)
    return Trainee(block, random_batch(100 + dist.get_rank(), 1, num_tokens, WIDTH))


def tensor_parallel(num_tokens, width=WIDTH):
    block = Block(width)
    set_weights(block)
    columns = {name: ColwiseParallel() for name in ("query", "key", "value", "up")}
    rows = {name: RowwiseParallel() for name in ("output", "down")}
    parallelize_module(block, init_device_mesh("cpu", (WORLD_SIZE,)), columns | rows)
    return Trainee(block, random_batch(100, 1, num_tokens, width))


CASES = {
    "ddp/linear": lambda: ddp(nn.Linear(20, 1), 20, 1),
    "ddp/mlp-4x1024": lambda: ddp(make_mlp(1024), 1024, 1024),
    "ddp/mlp-4x4096": lambda: ddp(make_mlp(4096), 4096, 4096),
    "fsdp/block-1024/tokens=64": lambda: fsdp(64),
    "fsdp/block-1024/tokens=512": lambda: fsdp(512),
    "tp/block-1024/tokens=64": lambda: tensor_parallel(64),
    "tp/block-1024/tokens=512": lambda: tensor_parallel(512),
    "tp/block-2048/tokens=64": lambda: tensor_parallel(64, 2048),
}


def two_steps(trainee):
    """Returns the second step's loss and gradients, which depend on the first step's update."""
    trainee.step()
    loss = trainee.step()
    return f"{loss.item():.10g} {trainee.gradient_sums()}"


def join(backend, rank, init_method):
    if backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group(backend, store=FakeStore(), rank=rank, world_size=WORLD_SIZE)
        return
    if backend == "cohort":
        import torchcohort  # noqa: F401  registers the backend
    dist.init_process_group(backend, init_method=init_method, rank=rank, world_size=WORLD_SIZE)


def main():
    backend, rank, commands, init_method = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    torch.set_num_threads(1)
    # The values in fake's results are undefined; denormal numbers would make the floor slower.
    torch.set_flush_denormal(True)
    join(backend, rank, init_method)
    answer_commands(commands, lambda _, name: CASES[name](), two_steps)
    dist.destroy_process_group()
    if backend == "gloo":
        leave()


if __name__ == "__main__":
    main()
