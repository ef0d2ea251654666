"""What tests/e2e/programs/dtensor/dtensor_rank.cpp prints, by PyTorch itself."""
import warnings

import torch
import torch.distributed as dist
import torch.distributed.tensor as dt
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

warnings.filterwarnings("ignore")


def values(tensor):
    flat = tensor.detach().double().flatten().tolist()
    return "".join(f"{size} " for size in tensor.shape) + ":" + "".join(f" {int(value * 1000 + (0.5 if value >= 0 else -0.5))}" for value in flat)


def show(name, tensor):
    placements = "".join(f"{placement} " for placement in map(repr, tensor.placements))
    print(name, f"{placements}local {values(tensor.to_local())} full {values(tensor.full_tensor())}")


def numbers(*sizes):
    return torch.arange(torch.Size(sizes).numel(), dtype=torch.double).view(sizes).remainder(7).sub(3)


def placed(sizes, mesh, placement):
    return distribute_tensor(numbers(*sizes), mesh, [placement]).detach().requires_grad_()


def show_error(name, fn):
    try:
        fn()
        print(name, "(no error)")
    except Exception as error:
        print(name, " ".join(str(part) for part in error.args))


def show_moves(mesh):
    for source in (Replicate(), Shard(0), Shard(1), Partial()):
        for target in (Replicate(), Shard(0), Shard(1)):
            tensor = placed((5, 3), mesh, source)
            with CommDebugMode() as counts:
                moved = tensor.redistribute(placements=[target])
            found = {key.__name__.split(".")[0]: count for key, count in counts.get_comm_counts().items()}
            kinds = [("all_reduce",), ("all_gather_into_tensor",), ("reduce_scatter_tensor",), ("all_to_all_single", "shard_dim_alltoall")]
            # On the CPU Python gathers where we exchange.
            text = "exchange" if {source, target} == {Shard(0), Shard(1)} else "".join(str(sum(found.get(name, 0) for name in kind)) for kind in kinds)
            print(repr(source), "to", repr(target), "collectives", text)
            show("moved", moved)
            moved.mul(2).sum().backward()
            show("gradient", tensor.grad)


def show_products(mesh):
    for first in (Replicate(), Shard(0), Shard(1)):
        for second in (Replicate(), Shard(0), Shard(1)):
            a, b = placed((4, 6), mesh, first), placed((6, 2), mesh, second)
            product = a.mm(b)
            is_known = not (first == second == Shard(0)) and not (first == second == Shard(1))
            print(repr(first), "mm", repr(second), repr(product.placements[0]) if is_known else "any")
            product.sum().backward()
            print("full", values(product.detach().full_tensor()), "gradients", values(a.grad.full_tensor()), values(b.grad.full_tensor()))


def show_operations(mesh):
    for placement in (Shard(0), Shard(1)):
        x = placed((4, 6), mesh, placement).detach()
        show("relu", x.relu())
        show("sum 0", x.sum(0))
        show("sum 1", x.sum(1))
        show("t", x.t())
        show("softmax", x.softmax(0).redistribute(placements=[Replicate()]))
        show("plus", x + x)
        show("unsqueeze", x.unsqueeze(0))
    show("ones", dt.ones(5, 2, device_mesh=mesh, placements=[Shard(0)]))
    show("full", dt.full((5, 2), 2.5, device_mesh=mesh, placements=[Shard(1)]))
    show("zeros", dt.zeros(3, device_mesh=mesh))


def show_borders(mesh):
    rank = dist.get_rank()
    show("from_local", DTensor.from_local(torch.full((2, 2), rank + 1, dtype=torch.double), mesh, [Shard(1)]))
    show("partial", DTensor.from_local(torch.full((2,), rank + 1, dtype=torch.double), mesh, [Partial()]))
    show("odd", DTensor.from_local(torch.ones(2 - rank, dtype=torch.double), mesh, [Shard(0)], shape=torch.Size((3,)), stride=(1,)))
    x = placed((4, 2), mesh, Shard(0))
    (x.to_local() * (rank + 1)).sum().backward()
    show("to_local gradient", x.grad)
    tensor = placed((4,), mesh, Shard(0))
    show_error("to partial", lambda: tensor.redistribute(placements=[Partial()]))
    show_error("placements", lambda: distribute_tensor(torch.ones(4), mesh, [Shard(0), Shard(0)]))


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
show_moves(mesh)
show_products(mesh)
show_operations(mesh)
show_borders(mesh)
dist.destroy_process_group()
