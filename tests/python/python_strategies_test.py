"""Unmodified DDP, FSDP2, tensor and pipeline parallelism: over "cohort" bit for bit the numbers of "gloo" (2 ranks).

Two ranks, because then a sum has one order only: a + b is b + a. With more, Gloo's ring adds in another order than rank order.
"""
import pytest
import torch
import torch._dynamo  # imported here, once, not in each rank
import torch.distributed as dist
import torch.distributed.checkpoint
import torch.distributed.pipelining as pipelining
from ranks import run_ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.up = torch.nn.Linear(16, 32)
        self.down = torch.nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(Block(), Block())


def batch(step, rank):
    torch.manual_seed(1000 * step + rank)
    return torch.randn(4, 6, 16), torch.randn(4, 6, 16)


def whole(parameter):
    tensor = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
    return tensor.detach().clone()


def train(net, parameters, data_rank, optimizer=None, part=lambda tensor: tensor):
    optimizer = optimizer or torch.optim.AdamW(net.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        x, y = map(part, batch(step, data_rank))
        loss = torch.nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *(whole(parameter) for parameter in parameters)]


def ddp(rank, size):
    net = model()
    return train(DistributedDataParallel(net, bucket_cap_mb=0.001), list(net.parameters()), rank)


def ddp_static_graph_with_zero(rank, size):
    net = DistributedDataParallel(model(), static_graph=True, gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=0.01)
    return train(net, list(net.parameters()), rank, optimizer)


def fsdp2(rank, size):
    net = model()
    for block in net:
        fully_shard(block)
    fully_shard(net)
    return train(net, list(net.parameters()), rank)


def tensor_parallel(rank, size):
    net, mesh = model(), init_device_mesh("cpu", (size,))
    for block in net:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return train(net, list(net.parameters()), 0)


def sequence_parallel(rank, size):
    net, mesh = model(), init_device_mesh("cpu", (size,))
    for block in net:
        parallelize_module(block, mesh, {"norm": SequenceParallel(), "up": ColwiseParallel(input_layouts=Shard(1)),
                                         "down": RowwiseParallel(output_layouts=Shard(1))})
    return train(net, list(net.parameters()), 0, part=lambda tensor: tensor.chunk(size, 1)[rank])


def pipeline(schedule):
    def rank_main(rank, size):
        blocks = model()
        stage = pipelining.PipelineStage(blocks[rank], rank, size, torch.device("cpu"))
        steps = schedule(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
        optimizer = torch.optim.AdamW(blocks[rank].parameters(), lr=0.01)
        losses = []
        for step in range(3):
            x, y = batch(step, 0)
            optimizer.zero_grad()
            if rank == 0:
                steps.step(x)
            else:
                found = []
                steps.step(target=y, losses=found)
                losses += [loss.detach() for loss in found]
            optimizer.step()
        return [*losses, *(whole(parameter) for parameter in blocks[rank].parameters())]
    return rank_main


STRATEGIES = {"ddp": ddp, "ddp_static_graph_with_zero": ddp_static_graph_with_zero, "fsdp2": fsdp2,
              "tensor_parallel": tensor_parallel, "sequence_parallel": sequence_parallel,
              "gpipe": pipeline(pipelining.ScheduleGPipe), "1f1b": pipeline(pipelining.Schedule1F1B)}


@pytest.mark.parametrize("name", STRATEGIES)
def test_same_bits_as_over_gloo(name):
    ours, theirs = (run_ranks(STRATEGIES[name], 2, backend=backend) for backend in ("cohort", "gloo"))
    for rank in range(2):
        assert len(ours[rank]) == len(theirs[rank]) > 3
        for mine, other in zip(ours[rank], theirs[rank], strict=True):
            assert torch.equal(mine, other), f"rank {rank}"


def mesh_of_two_axes(rank, size):
    """FSDP2 over one axis, tensor parallelism over the other."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    net = model()
    for block in net:
        parallelize_module(block, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["data"])
    fully_shard(net, mesh=mesh["data"])
    return train(net, list(net.parameters()), mesh["data"].get_local_rank())


def test_mesh_of_two_axes():
    ours, theirs = (run_ranks(mesh_of_two_axes, 4, backend=backend) for backend in ("cohort", "gloo"))
    for mine, other in zip(sum(ours, []), sum(theirs, []), strict=True):
        assert torch.equal(mine, other)


def checkpoint(folder):
    def rank_main(rank, size):
        saved, loaded = model(), model()
        for net in (saved, loaded):
            fully_shard(net)
        train(saved, [], rank)
        dist.checkpoint.save({"model": saved.state_dict()}, checkpoint_id=folder)
        state = {"model": loaded.state_dict()}
        dist.checkpoint.load(state, checkpoint_id=folder)
        loaded.load_state_dict(state["model"])
        assert not torch.equal(whole(saved[0].up.weight), model()[0].up.weight)
        return [torch.equal(whole(one), whole(other)) for one, other in zip(saved.parameters(), loaded.parameters())]
    return rank_main


def test_distributed_checkpoint(tmp_path):
    for same in run_ranks(checkpoint(tmp_path / "checkpoint"), 2):
        assert len(same) == 12 and all(same)
