"""sharded_python_rank.py save FOLDER or load FOLDER: a rank that saves what sharded_tool.cpp knows as PyTorch's DCP, or loads and compares
it. As a module it has what both know."""
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def numbers(shape, first):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32) + first).view(shape)


def known_tensors():
    """As known_state() of sharded_tool.cpp."""
    return {"model.whole": numbers((3, 4), 100), "model.half": numbers((6,), 0.5).to(torch.bfloat16),
            "model.scalar": numbers((), 7), "model.rows": numbers((5, 4), 0), "model.columns": numbers((4, 5), 50)}


KNOWN_VALUES = {"optim.step": 3, "optim.lr": 0.1, "optim.betas": (0.9, 0.999), "optim.name": "é", "optim.list": [1, 2]}


def same(a, b):
    assert a.keys() == b.keys()
    for name, value in a.items():
        if isinstance(value, torch.Tensor):
            assert value.dtype == b[name].dtype and torch.equal(value, b[name]), name
        else:
            assert value == b[name] and type(value) is type(b[name]), name


def in_order(state):
    """State dicts of torch.distributed.checkpoint.load: zeros, and values that are replaced."""
    return {name: torch.zeros_like(value) if isinstance(value, torch.Tensor) else None for name, value in state.items()}


def in_parts(state, names, mesh):
    return state | {name: distribute_tensor(state[name], mesh, [Shard(dim)]) for dim, name in enumerate(names)}


def main(what, folder):
    dist.init_process_group("gloo")
    mesh, state = init_device_mesh("cpu", (2,)), dict(known_tensors(), **KNOWN_VALUES)
    if what == "save":
        dcp.save(in_parts(state, ["model.rows", "model.columns"], mesh), checkpoint_id=folder)
    else:
        loaded = in_parts(in_order(state), ["model.columns", "model.rows"], mesh)
        dcp.load(loaded, checkpoint_id=folder)
        same({name: value.full_tensor() if hasattr(value, "full_tensor") else value for name, value in loaded.items()}, state)
    dist.destroy_process_group()
    os._exit(0)  # the interpreter's own end may abort: see ddp_reference.py


if __name__ == "__main__":
    main(*sys.argv[1:])
