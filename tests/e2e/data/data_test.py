"""The order of examples in C++ is Python's, index for index."""
import itertools
import subprocess

import pytest
import torch
from torch.utils.data import (DataLoader, DistributedSampler, RandomSampler, SubsetRandomSampler,
                              WeightedRandomSampler)


@pytest.fixture
def ask(programs):
    """Sends all requests to one C++ process and returns its lines, each as a list of numbers (or of batches)."""

    def run(requests):
        text = "".join(" ".join(str(int(word) if isinstance(word, bool) else word) for word in request) + "\n"
                       for request in requests)
        done = subprocess.run([programs / "data_orders"], input=text, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def numbers(line):
    return [int(word) for word in line.split()]


def batches(line):
    return [numbers(part) for part in line.split("|")[:-1]]


def generator(seed):
    return torch.Generator().manual_seed(seed)


def test_distributed_sampler_gives_pythons_indices(ask):
    grid = [(length, replicas, rank, shuffle, seed, epoch, drop_last)
            for length, replicas in itertools.product([0, 1, 2, 3, 5, 7, 8, 16, 17, 100, 101], [1, 2, 3, 4, 7, 16])
            for rank in range(replicas)
            for shuffle, seed, epoch, drop_last in [(False, 0, 0, False), (False, 0, 0, True), (True, 0, 0, False),
                                                    (True, 0, 1, False), (True, 0, 1, True), (True, 12345, 7, False),
                                                    (True, -3, 1, False), (True, 2**40, 2**33, True)]]
    lines = ask(("distributed",) + case for case in grid)
    assert len(lines) == len(grid)
    for case, line in zip(grid, lines):
        length, replicas, rank, shuffle, seed, epoch, drop_last = case
        sampler = DistributedSampler(range(length), replicas, rank, shuffle, seed, drop_last)
        sampler.set_epoch(epoch)
        assert numbers(line) == list(sampler), case


def test_distributed_sampler_on_a_large_dataset(ask):
    """randperm takes another path for large sizes."""
    cases = [(1_000_003, 4, rank, True, 1, 2, False) for rank in (0, 3)]
    for case, line in zip(cases, ask(("distributed",) + case for case in cases)):
        sampler = DistributedSampler(range(case[0]), *case[1:5], case[6])
        sampler.set_epoch(case[5])
        assert numbers(line) == list(sampler), case


@pytest.mark.parametrize("given", [False, True])
def test_random_sampler_gives_pythons_indices(ask, given):
    grid = [(length, replacement, num_samples, seed, 3, given)
            for length, num_samples in [(1, 1), (5, 5), (5, 3), (5, 13), (100, 100), (7, 64), (7, 65), (1000, 31)]
            for replacement in (False, True) for seed in (0, 42)]
    lines = ask(("random",) + case for case in grid)
    for i, case in enumerate(grid):
        length, replacement, num_samples, seed, epochs, _ = case
        torch.manual_seed(seed)
        sampler = RandomSampler(range(length), replacement, num_samples, generator(seed) if given else None)
        assert [numbers(line) for line in lines[i * epochs:(i + 1) * epochs]] == [list(sampler) for _ in range(epochs)]


def test_subset_and_weighted_samplers_give_pythons_indices(ask):
    lines = ask([("subset", 9, 4, 2), ("weighted", 6, True, 20, 5, 2), ("weighted", 6, False, 4, 5, 2)])
    subset = SubsetRandomSampler([i * 10 for i in range(9)], generator(4))
    often = WeightedRandomSampler([1, 2, 3, 4, 5, 6], 20, True, generator(5))
    once = WeightedRandomSampler([1, 2, 3, 4, 5, 6], 4, False, generator(5))
    expected = [list(sampler) for sampler in (subset, subset, often, often, once, once)]
    assert [numbers(line) for line in lines] == expected


@pytest.mark.parametrize("given", [False, True])
def test_data_loader_gives_pythons_batches(ask, given):
    """Epoch after epoch, however many workers: the generators move on by the same steps."""
    grid = [(length, batch_size, shuffle, drop_last, workers, 11, 3, given)
            for length, batch_size in [(1, 1), (10, 4), (12, 4), (33, 5)]
            for shuffle in (False, True) for drop_last in (False, True) for workers in (0, 1, 3)]
    lines = ask(("loader",) + case for case in grid)
    for i, case in enumerate(grid):
        length, batch_size, shuffle, drop_last, _, seed, epochs, _ = case
        torch.manual_seed(seed)
        loader = DataLoader(range(length), batch_size, shuffle, drop_last=drop_last,
                            generator=generator(seed) if given else None)
        expected = [[batch.tolist() for batch in loader] for _ in range(epochs)]
        assert [batches(line) for line in lines[i * epochs:(i + 1) * epochs]] == expected, case
