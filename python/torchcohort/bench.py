"""python -m torchcohort.bench: compares the speed of "cohort" and "gloo" on this machine. Needs only the package.

Starts its own ranks. All ways of a case alternate in the same processes, so that both have the same conditions; a figure is the
median of many blocks.
"""

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel

import torchcohort  # noqa: F401

WAYS = ("gloo", "cohort")
Step = Callable[[], object]


def mlp(width: int) -> torch.nn.Module:
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers)


def training_step(make_net: Callable[[], torch.nn.Module], width: int, group: dist.ProcessGroup | None) -> Step:
    """Returns one step of SGD on random data; without a group, on this rank alone."""
    torch.manual_seed(1)
    net = make_net()
    if group is not None:
        net = DistributedDataParallel(net, process_group=group)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    batch = torch.randn(32, width)

    def step() -> None:
        optimizer.zero_grad()
        net(batch).square().mean().backward()
        optimizer.step()

    return step


def all_reduce_step(num_bytes: int, group: dist.ProcessGroup) -> Step:
    tensor = torch.zeros(num_bytes // 4)
    return lambda: dist.all_reduce(tensor, group=group)


def cases(groups: dict[str, dist.ProcessGroup]) -> dict[str, dict[str, Step]]:
    """Returns {case: {way: step}}; the way "alone" is the same step without communication."""
    found = {}
    for name, num_bytes in (("all_reduce of 4 B", 4), ("all_reduce of 1 MiB", 1 << 20), ("all_reduce of 64 MiB", 64 << 20)):
        found[name] = {way: all_reduce_step(num_bytes, group) for way, group in groups.items()}
    nets = (("DDP step, Linear(20, 1)", lambda: torch.nn.Linear(20, 1), 20), ("DDP step, MLP 4x1024", lambda: mlp(1024), 1024))
    for name, make_net, width in nets:
        found[name] = {way: training_step(make_net, width, group) for way, group in groups.items()}
        found[name]["alone"] = training_step(make_net, width, None)
    return found


def seconds_of_block(step: Step, num_steps: int) -> float:
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(num_steps):
        step()
    return (time.perf_counter() - begin) / num_steps


def measure(ways: dict[str, Step], seconds: float) -> dict[str, float]:
    """Returns the median seconds of one step of each way. Rank 0 decides how many steps all ranks make."""
    num_steps, blocks = {}, {way: [] for way in ways}
    for way, step in ways.items():
        once = torch.tensor([min(seconds_of_block(step, 3) for _ in range(2))])
        dist.broadcast(once, 0)
        num_steps[way] = max(1, min(1000, int(seconds / 12 / len(ways) / once.item())))
    for _ in range(12):
        for way, step in ways.items():
            blocks[way].append(seconds_of_block(step, num_steps[way]))
    return {way: statistics.median(times) for way, times in blocks.items()}


def text_of(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def row(name: str, times: dict[str, float]) -> str:
    columns = [text_of(times[way]) for way in WAYS] + [f"{times['gloo'] / times['cohort']:.1f}x"]
    if "alone" in times:
        columns.append(text_of(times["alone"]))
    return f"{name:26}" + "".join(f"{column:>14}" for column in columns)


def run_rank(rank: int, num_ranks: int, store: str, seconds: float) -> None:
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // num_ranks))
    dist.init_process_group("cohort", init_method=f"file://{store}", rank=rank, world_size=num_ranks)
    groups = {way: dist.new_group(backend=way) for way in WAYS}
    if rank == 0:
        print(f"{num_ranks} ranks on {len(os.sched_getaffinity(0))} cores, PyTorch {torch.__version__}, "
              f"torchcohort {torchcohort.__version__}", flush=True)
        print(f"{'':26}" + "".join(f"{title:>14}" for title in (*WAYS, "gain", "alone")), flush=True)
    for name, ways in cases(groups).items():
        times = measure(ways, seconds)
        if rank == 0:
            print(row(name, times), flush=True)
    dist.destroy_process_group()
    os._exit(0)  # Gloo's threads may abort while an interpreter ends


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m torchcohort.bench", description='Compares "cohort" with "gloo" here.')
    parser.add_argument("--ranks", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of measuring per case (default 3)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        torch.multiprocessing.spawn(run_rank, (arguments.ranks, f"{folder}/store", arguments.seconds), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
