"""The warning about models that nobody has wrapped: when it comes, and which programs it leaves alone."""

import pytest
from ranks import run_scripts

PRELUDE = """
import contextlib, os
import torch, torch.distributed as dist, torchcohort
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def begin():
    dist.init_process_group(BACKEND, init_method=os.environ["COHORT_TEST_STORE"], rank=rank, world_size=size)
def train(model, steps=4, context=contextlib.nullcontext, after=lambda: None):
    for step in range(steps):
        with context():
            model(torch.full((2, 3), rank + step + 1.0)).square().mean().backward()
        after()
def average():
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
"""
TEXT = ("[cohort] warning: rank {} of 2 has run two backward passes and exchanged no gradients: each rank trains its own copy of the model. Wrap "
        "the model in torch.nn.parallel.DistributedDataParallel, or all_reduce the gradients yourself. If your program adds up the gradients "
        "of several backward passes before it does so, all is well. A framework that looks at the backend's name may not have wrapped it: "
        "docs/guide/python.md has what to write for each.\n")


def errors_of(script, backend="cohort"):
    results = run_scripts(PRELUDE.replace("BACKEND", repr(backend)) + script, 2)
    for code, out, err in results:
        assert code == 0, out + err
    return [err for _, _, err in results]


@pytest.mark.parametrize("backend", ["cohort", "shm"])
def test_unwrapped_model_is_told_once_message(backend):
    script = "begin(); dist.barrier(); dist.broadcast(model.weight.data, 0); train(model); dist.destroy_process_group()"
    assert errors_of(script, backend) == [TEXT.format(0), ""]


# A default group after the first one is watched, too.
def test_each_default_group_is_watched():
    script = ("begin(); train(model, after=average); dist.destroy_process_group()\n"
              "os.environ['COHORT_TEST_STORE'] += '2'\n"
              "begin(); train(model); dist.destroy_process_group()")
    assert errors_of(script) == [TEXT.format(0), ""]


QUIET = {
    "averaged by hand": "begin(); train(model, after=average)",
    "wrapped": "begin(); train(torch.nn.parallel.DistributedDataParallel(model))",
    # Several passes before the first exchange.
    "accumulating": "begin(); ddp = torch.nn.parallel.DistributedDataParallel(model); train(ddp, context=ddp.no_sync)",
    "own hooks": "begin(); model.weight.register_post_accumulate_grad_hook(lambda parameter: None); train(model)",
    "stages of a pipeline": "begin(); dist.send(torch.ones(1), 1) if rank == 0 else dist.recv(torch.ones(1), 0); train(model)",
    "after the group": "begin(); dist.barrier(); dist.destroy_process_group(); train(model)",
    "one pass": "begin(); train(model, steps=1)",
    "sharded": "from torch.distributed.fsdp import fully_shard; begin(); train(fully_shard(model))",
}


@pytest.mark.parametrize("program", QUIET)
def test_no_warning_for_a_model_that_is(program):
    assert errors_of(QUIET[program] + "\nif dist.is_initialized(): dist.destroy_process_group()") == ["", ""]
