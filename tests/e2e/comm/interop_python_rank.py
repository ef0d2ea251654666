"""interop_python_rank.py INIT_METHOD RESULT BACKEND: one rank of a job whose other ranks may be C++'s.

The same operations, in the same order, stand in programs/comm/interop_rank.cpp; interop_test.py knows what they must give.
"""
import os
import sys

import torch
import torch.distributed as dist
from safetensors.torch import save_file


def numbers(count, dtype):
    return torch.arange(count).to(dtype) + 10 * dist.get_rank()


def run_collectives(results):
    size = dist.get_world_size()
    total = numbers(6, torch.float)
    dist.all_reduce(total)
    maximum = numbers(1001, torch.long)
    dist.all_reduce(maximum, dist.ReduceOp.MAX, async_op=True).wait()
    half = numbers(5, torch.bfloat16)
    dist.all_reduce(half)
    results |= {"all_reduce.sum": total, "all_reduce.max": maximum, "all_reduce.bfloat16": half}
    results["broadcast"] = numbers(7, torch.double)
    dist.broadcast(results["broadcast"], size - 1)
    parts = [torch.zeros(3) for _ in range(size)]
    dist.all_gather(parts, numbers(3, torch.float))
    results["all_gather"] = torch.stack(parts)
    results["all_gather_into_tensor"] = torch.zeros(3 * size)
    dist.all_gather_into_tensor(results["all_gather_into_tensor"], numbers(3, torch.float))
    results["reduce_scatter"] = torch.zeros(4)
    dist.reduce_scatter(results["reduce_scatter"], list(numbers(4 * size, torch.float).chunk(size)))
    results["reduce_scatter_tensor"] = torch.zeros(4)
    dist.reduce_scatter_tensor(results["reduce_scatter_tensor"], numbers(4 * size, torch.float))
    dist.barrier()


def run_point_to_point(results):
    rank, size = dist.get_rank(), dist.get_world_size()
    following, previous = (rank + 1) % size, (rank - 1) % size
    results["recv"] = torch.zeros(6)
    if rank == 0:
        dist.send(numbers(6, torch.float), following, tag=5)
    dist.recv(results["recv"], previous, tag=5)
    if rank > 0:
        dist.send(numbers(6, torch.float), following, tag=5)
    results["irecv"] = torch.zeros(2, dtype=torch.long)
    works = [dist.isend(numbers(2, torch.long), following), dist.irecv(results["irecv"], previous)]
    for work in works:
        work.wait()
    if rank > 0:
        dist.send(numbers(1, torch.long), 0, tag=7)
        return
    results["recv_any"] = torch.zeros(size, dtype=torch.long)
    for _ in range(1, size):
        value = torch.zeros(1, dtype=torch.long)
        source = dist.recv(value, tag=7)
        results["recv_any"][source] = value[0]


def run_rooted(results):
    rank, size = dist.get_rank(), dist.get_world_size()
    last = size - 1
    product = numbers(4, torch.int32)
    dist.reduce(product, last, dist.ReduceOp.PRODUCT)
    if rank == last:
        results["reduce"] = product
    lists = [torch.zeros(3) for _ in range(size)] if rank == last else None
    dist.gather(numbers(3, torch.float), lists, last)
    if rank == last:
        results["gather"] = torch.stack(lists)
    results["scatter"] = torch.zeros(2, dtype=torch.double)
    dist.scatter(results["scatter"], list(numbers(2 * size, torch.double).chunk(size)) if rank == last else None, last)
    results["all_to_all"] = torch.zeros(2 * size)
    dist.all_to_all_single(results["all_to_all"], numbers(2 * size, torch.float))
    splits = [rank + other for other in range(size)]
    results["all_to_all.uneven"] = torch.zeros(sum(splits))
    dist.all_to_all_single(results["all_to_all.uneven"], numbers(sum(splits), torch.float), splits, splits)
    first, second = numbers(3, torch.float), numbers(5, torch.float)
    with dist._coalescing_manager():
        dist.all_reduce(first)
        dist.all_reduce(second)
    results |= {"coalesced.first": first, "coalesced.second": second}
    results["batch"] = torch.zeros(3)
    batch = [dist.P2POp(dist.isend, numbers(3, torch.float), (rank + 1) % size),
             dist.P2POp(dist.irecv, results["batch"], (rank - 1) % size)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    if dist.get_backend() == "gloo":
        dist.monitored_barrier()


def run_groups(results):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    ends, alone, everyone = dist.new_group([0, last]), dist.new_group([last]), dist.new_group()
    if rank in (0, last):
        results["ends.all_reduce"] = numbers(3, torch.float)
        dist.all_reduce(results["ends.all_reduce"], group=ends)
        results["ends.broadcast"] = numbers(3, torch.float)
        dist.broadcast(results["ends.broadcast"], last, group=ends)
        dist.barrier(group=ends)
    if rank == last:
        results["alone.all_reduce"] = numbers(3, torch.float)
        dist.all_reduce(results["alone.all_reduce"], group=alone)
    results["all.all_reduce"] = numbers(3, torch.float)
    dist.all_reduce(results["all.all_reduce"], group=everyone)
    dist.barrier(group=everyone)
    size = dist.get_world_size()
    if size % 2 == 0:
        pair, _ = dist.new_subgroups(2)
        results["pair.all_reduce"] = numbers(3, torch.float)
        dist.all_reduce(results["pair.all_reduce"], group=pair)


def main(init_method, result, backend):
    if backend != "gloo":
        import torchcohort  # noqa: F401
    explicit = {} if init_method == "env://" else dict(rank=int(os.environ["RANK"]),
                                                       world_size=int(os.environ["WORLD_SIZE"]))
    dist.init_process_group(backend, init_method=init_method, **explicit)
    results = {}
    # Before any other group: from then on Python's name for it differs between ranks that are in different groups.
    if dist.get_rank() < 2:
        local = dist.new_group([0, 1], use_local_synchronization=True)
        results["local.all_reduce"] = numbers(3, torch.float)
        dist.all_reduce(results["local.all_reduce"], group=local)
    run_collectives(results)
    run_point_to_point(results)
    run_rooted(results)
    run_groups(results)
    save_file(results, result)
    dist.destroy_process_group()
    if backend == "gloo":
        os._exit(0)  # the interpreter's own end may abort: see ddp_reference.py


if __name__ == "__main__":
    main(*sys.argv[1:])
