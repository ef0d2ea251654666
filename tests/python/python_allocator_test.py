"""The shared allocator under Python's own training: the same bits, tensors in memory that ranks share, forked children."""
import os

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks, run_scripts
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import torchcohort

pytestmark = pytest.mark.tier_all  # the allocator is not the default

SIZE = 2
LARGE = 1 << 20
ON = {"COHORT_SHARED_ALLOCATOR": "1"}


def train(wrap):
    """The weights after three steps of a model whose gradients are large enough for the allocator."""
    def run(rank, size):
        torch.manual_seed(1)
        net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
        net = wrap(net)
        adam = torch.optim.AdamW(net.parameters(), lr=1e-2)
        for step in range(3):
            torch.manual_seed(100 * step + rank)
            adam.zero_grad()
            net(torch.randn(64, 256)).square().mean().backward()
            adam.step()
        weights = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in net.parameters()]
        return [p.detach().clone() for p in weights], torchcohort.shared_allocator_stats()["num_recycled"]
    return run


@pytest.mark.parametrize("wrap", [DistributedDataParallel, fully_shard])
def test_training_has_the_same_bits(wrap):
    plain = run_ranks(train(wrap), SIZE)
    shared = run_ranks(train(wrap), SIZE, environment=ON)
    for (expected, none), (weights, num_recycled) in zip(plain, shared, strict=True):
        assert none == 0 and num_recycled > 10
        for one, other in zip(expected, weights, strict=True):
            assert torch.equal(one, other)


def test_use_in_a_program(tmp_path):
    text = """
import os, torch, torch.distributed as dist, torchcohort
assert not torchcohort.has_shared_allocator()
torchcohort.use_shared_allocator(reserved_bytes=1 << 30)
assert torchcohort.has_shared_allocator()
dist.init_process_group("cohort", init_method=os.environ["COHORT_TEST_STORE"], rank=int(os.environ["RANK"]), world_size=2)
rank = dist.get_rank()
tensor = torch.full((1 << 20,), float(rank))
assert torchcohort.shared_allocator_stats()["used_bytes"] == 4 << 20
dist.all_reduce(tensor)
assert tensor.eq(1).all()
gathered = torch.empty(2 << 20)
dist.all_gather_single(gathered, torch.full((1 << 20,), rank + 5.0))
assert gathered[:1 << 20].eq(5).all() and gathered[1 << 20:].eq(6).all()
del tensor, gathered
torchcohort.empty_shared_allocator_cache()
stats = torchcohort.shared_allocator_stats()
assert stats["used_bytes"] == stats["cached_bytes"] == 0 and stats["reserved_bytes"] == 1 << 30, stats
dist.destroy_process_group()
"""
    for code, out, err in run_scripts(text, SIZE):
        assert (code, out, err) == (0, "", "")


class Numbers(torch.utils.data.Dataset):
    def __init__(self):
        self.numbers = torch.arange(LARGE, dtype=torch.float32).view(64, -1)

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        return self.numbers[index] * 2


def load(rank, size):
    dataset = Numbers()
    total = 0.0
    for batch in torch.utils.data.DataLoader(dataset, batch_size=8, num_workers=2, multiprocessing_context="fork"):
        total += batch.double().sum().item()
    tensor = torch.full((LARGE,), total)
    dist.all_reduce(tensor)
    return dataset.numbers.double().sum().item(), total, tensor[0].item()


def test_forked_loader_workers_read_their_parents_tensors():
    expected = LARGE * (LARGE - 1) / 2
    for numbers, total, reduced in run_ranks(load, SIZE, environment=ON):
        assert numbers == expected and total == 2 * expected
        assert reduced == torch.tensor(2 * 2 * expected).float().item()


def test_a_wrong_value_of_the_variable():
    text = "import torchcohort"
    (code, _, err), = run_scripts(text, 1, COHORT_SHARED_ALLOCATOR="perhaps")
    assert code == 1 and "COHORT_SHARED_ALLOCATOR" in err.splitlines()[-1], err


def test_the_limit_of_files_is_named():
    text = """
import resource, torchcohort
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
torchcohort.use_shared_allocator()
"""
    (code, _, err), = run_scripts(text, 1)
    assert code == 1
    lines = err.splitlines()
    assert "RuntimeError: [cohort] use_shared_allocator cannot reserve memory for tensors" in lines
    assert lines[-1].endswith(": File too large (EFBIG); the size of this process's files is limited to 1.0 MiB (ulimit -f)"), err
    assert os.environ.get("COHORT_SHARED_ALLOCATOR") is None
