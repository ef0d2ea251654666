"""profiler_python_rank.py RESULT: the calls of programs/comm/profiler_rank.cpp, made by PyTorch."""
import os
import pathlib
import sys

import torch
import torch.distributed as dist


def run_operations():
    rank, tensor, pair = dist.get_rank(), torch.ones(4), [torch.ones(2), torch.ones(2)]
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    dist.reduce(tensor, 0)
    dist.all_gather(pair, torch.ones(2))
    dist.all_gather_into_tensor(tensor, torch.ones(2))
    dist.gather(torch.ones(2), pair if rank == 0 else None, 0)
    dist.scatter(torch.ones(2), pair if rank == 0 else None, 0)
    dist.reduce_scatter(torch.ones(2), pair)
    dist.reduce_scatter_tensor(torch.ones(2), tensor)
    dist.all_to_all_single(tensor, torch.ones(4))
    if rank == 0:
        dist.send(tensor, 1)
        dist.recv(tensor, 1)
        dist.recv(tensor)
    else:
        dist.recv(tensor, 0)
        dist.send(tensor, 0)
        dist.send(tensor, 0)
    dist.barrier()


def main(result):
    dist.init_process_group("gloo")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run_operations()
    pathlib.Path(result).write_text("".join(f"{name}\n" for name in sorted({event.name for event in profile.events()})))
    dist.destroy_process_group()
    os._exit(0)  # the interpreter's own end may abort: see ddp_reference.py


if __name__ == "__main__":
    main(*sys.argv[1:])
