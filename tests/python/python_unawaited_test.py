"""The warning at a program's end about Works that nobody has waited for: which it names, on which rank, and what it leaves alone."""

import pytest
from ranks import run_scripts

PRELUDE = """
import os, time
import torch, torch.distributed as dist, torchcohort
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group(BACKEND, init_method=os.environ["COHORT_TEST_STORE"], rank=rank, world_size=size)
def drop(destroys=True):
    dist.all_reduce(torch.full((3,), rank + 1.0), async_op=True)
    tensor = torch.full((2,), float(1 - rank))
    work = dist.isend(tensor, 1) if rank == 0 else dist.irecv(tensor, 0)
    while tensor[0] == 0:  # what nobody has received is lost when the group ends
        time.sleep(0.001)
    del work
    dist.barrier()
    if destroys:
        dist.destroy_process_group()
"""
START = "[cohort] warning: nobody has called wait() on the Work of "
END = (": their tensors may have been read before the results were there. Call wait() on every Work before you use its "
       "tensors.\n")


def results_of(script, backend="cohort"):
    return run_scripts(PRELUDE.replace("BACKEND", repr(backend)) + script, 2)


def errors_of(script, backend="cohort"):
    results = results_of(script, backend)
    for code, out, err in results:
        assert code == 0, out + err
    return [err for _, _, err in results]


@pytest.mark.parametrize("backend", ["cohort", "shm"])
@pytest.mark.parametrize("script", ["drop()", "drop(destroys=False)"])
def test_works_that_nobody_waited_for_are_named_message(backend, script):
    assert errors_of(script, backend) == [
        START + 'all_reduce #1 on group "default_pg", send #1 on group "default_pg"' + END,
        START + 'recv #1 on group "default_pg"' + END]


QUIET = {
    "waited for": "work = dist.all_reduce(torch.ones(3), async_op=True); work.wait()",
    "asked": "work = dist.all_reduce(torch.ones(3), async_op=True); work.is_completed(); dist.barrier(); del work",
    "future taken": "dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()",
    "synchronous": "x = torch.ones(3); dist.all_reduce(x); dist.broadcast(x, 1); dist.send(x, 1) if rank == 0 else dist.recv(x, 0)",
    "objects": "dist.all_gather_object([None] * size, {'rank': rank}); dist.broadcast_object_list([rank], 0)",
    "DDP": """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)))
for step in range(3):
    model(torch.full((2, 3), rank + step + 1.0)).square().mean().backward()
""",
    "FSDP": """
from torch.distributed.fsdp import fully_shard
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
for layer in model: fully_shard(layer)
fully_shard(model)
for step in range(3):
    model(torch.full((2, 3), rank + step + 1.0)).square().mean().backward()
""",
    "ZeRO": """
from torch.distributed.optim import ZeroRedundancyOptimizer
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 4))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
for step in range(3):
    model(torch.full((2, 3), rank + step + 1.0)).square().mean().backward()
    optimizer.step()
""",
    "DTensor": """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor, Replicate, Shard
mesh = init_device_mesh("cpu", (2,))
cut = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
assert cut.sum().full_tensor() == 28 and cut.redistribute(mesh, [Replicate()]).to_local().sum() == 28
""",
}


@pytest.mark.parametrize("name", QUIET)
@pytest.mark.parametrize("end", ["", "\ndist.destroy_process_group()"])
def test_programs_that_wait_see_no_warning(name, end):
    assert errors_of(QUIET[name] + end) == ["", ""]


# Its error is more important to read, and who has failed waits for nobody.
def test_a_program_that_fails_is_not_told():
    for code, _, err in results_of("drop(destroys=False)\nraise ValueError('of the program')"):
        assert code == 1 and err.endswith("ValueError: of the program\n") and START not in err
