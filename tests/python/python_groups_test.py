"""Groups made in every way PyTorch has, object collectives, debug levels, and combinations that are refused."""
import datetime
import os
import re

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch.distributed.device_mesh import init_device_mesh


def sum_in(group, rank):
    total = torch.full((3,), float(rank + 1))
    dist.all_reduce(total, group=group)
    return total[0].item()


def subgroups(rank, size):
    ends = dist.new_group([0, size - 1])
    everyone = dist.new_group(backend="shm")
    on_gloo = dist.new_group(backend="gloo")
    mine, _ = dist.new_subgroups_by_enumeration([[0, 2], [1]])
    results = [sum_in(everyone, rank), sum_in(on_gloo, rank), sum_in(mine, rank)]
    if rank in (0, size - 1):
        results.append(sum_in(ends, rank))
        local = dist.new_group([0, size - 1], use_local_synchronization=True)
        results.append(sum_in(local, rank))
        dist.destroy_process_group(local)
    return results, dist.get_backend(), dist.get_backend(everyone), dist.get_backend(on_gloo), dist.get_backend(mine)


def test_subgroups():
    names = ("cohort", "shm", "gloo", "cohort")
    assert run_ranks(subgroups, 3) == [([6, 6, 4, 4, 4], *names), ([6, 6, 2], *names), ([6, 6, 4, 4, 4], *names)]


def mesh(rank, size):
    both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    rows, columns = both["rows"].get_group(), both["columns"].get_group()
    flat = both["rows", "columns"]._flatten("all").get_group()
    return [sum_in(rows, rank), sum_in(columns, rank), sum_in(flat, rank)], dist.get_backend(rows)


def test_device_mesh():
    assert run_ranks(mesh, 4) == [([4, 3, 10], "cohort"), ([6, 3, 10], "cohort"), ([4, 7, 10], "cohort"), ([6, 7, 10], "cohort")]


def start_again(rank, size):
    url = os.environ["COHORT_TEST_STORE"]
    sums = []
    for step, backend in enumerate(["cohort", "shm", "gloo", "cohort", None, "cpu:cohort"]):
        dist.init_process_group(backend, init_method=f"{url}{step}", rank=rank, world_size=size)
        sums.append(sum_in(None, rank))
        dist.destroy_process_group()
    return sums


def test_groups_after_destroy():
    assert run_ranks(start_again, 2, backend=None) == [[3] * 6] * 2


def objects(rank, size):
    everything, scattered, gathered = [None] * size, [None], [None] * size if rank == 0 else None
    dist.all_gather_object(everything, {"rank": rank, "text": "x" * (rank * 1000)})
    broadcast = [f"of {rank}", rank] if rank == 1 else [None, None]
    dist.broadcast_object_list(broadcast, src=1)
    dist.scatter_object_list(scattered, [f"for {other}" for other in range(size)] if rank == 0 else None, src=0)
    dist.gather_object((rank, torch.ones(rank)), gathered, dst=0)
    if rank == 0:
        dist.send_object_list(["sent", 7], dst=1)
    elif rank == 1:
        received = [None, None]
        dist.recv_object_list(received, src=0)
        assert received == ["sent", 7]
    lengths = [len(each["text"]) for each in everything]
    return lengths, broadcast, scattered, rank != 0 or [len(tensor) for _, tensor in gathered] == [0, 1, 2]


def test_object_collectives():
    for rank, (lengths, broadcast, scattered, gathered) in enumerate(run_ranks(objects, 3)):
        assert (lengths, broadcast, scattered, gathered) == ([0, 1000, 2000], ["of 1", 1], [f"for {rank}"], True)


def functional(rank, size):
    import torch.distributed._functional_collectives as functional_collectives
    total = functional_collectives.all_reduce(torch.full((2,), rank + 1.0), "sum", dist.group.WORLD)
    gathered = functional_collectives.all_gather_tensor(torch.full((2,), rank + 1.0), 0, dist.group.WORLD)
    return (total + 0).tolist(), (gathered + 0).tolist()


def test_functional_collectives():
    assert run_ranks(functional, 2) == [([3, 3], [1, 1, 2, 2])] * 2


def ddp_under_debug(rank, size):
    dist.set_debug_level_from_env()
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
    net(torch.ones(1, 3)).sum().backward()
    try:
        dist.all_reduce(torch.ones(3 + rank))
    except RuntimeError as error:
        return type(error).__name__, str(error)
    return "nothing", ""


@pytest.mark.parametrize("level", ["INFO", "DETAIL"])
def test_debug_levels(level):
    for kind, text in run_ranks(ddp_under_debug, 2, environment={"TORCH_DISTRIBUTED_DEBUG": level}):
        assert kind == "DistBackendError"
        assert "rank 0 calls all_reduce(SUM) of 3 float32\n  caused by: rank 1 calls all_reduce(SUM) of 4 float32" in text


def only_of_gloo(rank, size):
    with pytest.raises(ValueError, match="^monitored_barrier is only implemented for GLOO backend.$"):
        dist.monitored_barrier()
    with pytest.raises(RuntimeError, match="^No device associated with the default pg, not safe to split any process groups$"):
        dist.split_group(split_ranks=[[0], [1]])
    return sum_in(None, rank)


def test_what_pytorch_keeps_for_others():
    assert run_ranks(only_of_gloo, 2) == [3, 3]


def refusal(backend):
    def rank_main(rank, size):
        try:
            dist.init_process_group(backend, init_method=os.environ["COHORT_TEST_STORE"], rank=rank, world_size=size,
                                    timeout=datetime.timedelta(seconds=5))
        except Exception as error:
            return type(error).__name__, str(error)
        return "nothing", ""
    return rank_main


REFUSED = {
    "cpu:cohort,cuda:fake": r'backend string "cpu:cohort,cuda:fake": c10d keeps a single registered backend per group, so "cohort" '
                            r'and "fake" \(for cuda tensors\) cannot be in one; use "cohort" alone, which serves all devices',
    "cuda:shm": 'backend string "cuda:shm": backend "shm" serves cpu tensors, not cuda tensors',
    "cpu:shm,cuda:cohort": r'backend string "cpu:shm,cuda:cohort": c10d keeps a single registered backend per group, so "\w+" and '
                           r'"\w+" \(for \w+ tensors\) cannot be in one; use "cohort" alone, which serves all devices',
}


@pytest.mark.parametrize("backend", REFUSED)
def test_refused_combination_message(backend):
    for kind, text in run_ranks(refusal(backend), 1, backend=None):
        assert kind == "ValueError" and re.fullmatch(r"\[cohort\] " + REFUSED[backend], text), text


def with_pytorchs_own(rank, size):
    return sum_in(None, rank), str(dist.distributed_c10d._world.pg_backend_config[dist.group.WORLD])


@pytest.mark.parametrize("backend", ["cpu:cohort,cuda:gloo", "cpu:gloo,cuda:cohort", "cpu:cohort,cuda:cohort,mps:gloo"])
def test_beside_a_backend_of_pytorch(backend):
    assert run_ranks(with_pytorchs_own, 2, backend=backend) == [(3, backend)] * 2
