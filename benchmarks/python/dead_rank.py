"""Measures how long a rank of `torchcohort` waits in a collective for a rank that is killed (SIGKILL) until it gets the error.

    PYTHONPATH=build/python python benchmarks/python/dead_rank.py [ranks [rounds]]

Each round starts new ranks. All of them all-reduce once; then all but rank 1 wait in the next all-reduce, and after half a second
rank 1 kills itself and writes the time. Prints the times of all other ranks in milliseconds.
"""
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torchcohort  # noqa: F401

VICTIM = 1


def run_rank(folder, rank, size):
    torch.set_num_threads(1)
    dist.init_process_group("cohort", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    value = torch.ones(4)
    dist.all_reduce(value)
    if rank == VICTIM:
        time.sleep(0.5)
        (folder / "killed").write_text(str(time.monotonic_ns()))
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(value)
    except dist.DistBackendError as error:
        end = time.monotonic_ns()
        named = f"rank {VICTIM} " in str(error)
        (folder / f"time{rank}").write_text(str((end - int((folder / "killed").read_text())) / 1e6) if named else f"unnamed: {error}")


def run_round(size):
    with tempfile.TemporaryDirectory() as name:
        folder, children = pathlib.Path(name), []
        for rank in range(size):
            child = os.fork()
            if child == 0:
                run_rank(folder, rank, size)
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        return [float((folder / f"time{rank}").read_text()) for rank in range(size) if rank != VICTIM]


def main():
    size, rounds = (int(word) for word in (sys.argv[1:] + ["2", "20"][len(sys.argv) - 1:]))
    times = sorted(time for _ in range(rounds) for time in run_round(size))
    print(f"{size} ranks, {len(times)} times: median {statistics.median(times):.0f} ms, least {times[0]:.0f}, most {times[-1]:.0f}")


if __name__ == "__main__":
    main()
