"""The order of examples in C++ is Python's, index for index, and so are the texts of errors."""
import itertools
import subprocess

import pytest
import torch
from torch.utils.data import (BatchSampler, ChainDataset, ConcatDataset, DataLoader, DistributedSampler, IterableDataset,
                              RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, random_split)


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


def error_or(function):
    try:
        return function()
    except (ValueError, AssertionError, IndexError) as error:
        return f"error: {error}"


SPLITS = [(10, (7, 3)), (10, (10,)), (10, (0, 10)), (10, (1,)), (5, (1, 0)), (0, ()), (0, (0, 0)), (10, (7, 4)), (10, ()),
          (10, (0.5, 0.5)), (11, (0.5, 0.5)), (17, (0.3, 0.3, 0.4)), (3, (0.25, 0.25, 0.25, 0.25)), (100, (0.1,) * 10),
          (30, (0.333, 0.333, 0.334)), (10, (1.0,)), (10, (0.6, 0.5)), (10, (0.5, 0.4)), (10, (1.5, -0.5)),
          (10, (-0.5, 1.5)), (1_000_003, (0.9, 0.1))]


@pytest.mark.filterwarnings("ignore:Length of split")
def test_random_split_gives_pythons_indices_and_errors(ask):
    grid = [(length, seed, lengths) for length, lengths in SPLITS for seed in (0, 7)]
    lines = ask(("split", length, seed, len(lengths)) + lengths for length, seed, lengths in grid)
    for (length, seed, lengths), line in zip(grid, lines, strict=True):
        expected = error_or(lambda: [part.indices for part in random_split(range(length), lengths, generator(seed))])
        actual = line if line.startswith("error") else batches(line)
        assert actual == expected, (length, lengths)


class Stream(IterableDataset):

    def __init__(self, first, count):
        self.values = range(first, first + count)

    def __iter__(self):
        return iter(self.values)


def make_python_loader(kind, options):
    options = dict(options)
    sampler = SequentialSampler(range(10))
    if "sampler" in options:
        options["sampler"] = sampler
    if "batch_sampler" in options:
        options["batch_sampler"] = BatchSampler(sampler, 2, False)
    if kind == "unbatched":
        options["batch_size"] = None
    if kind != "iterable" and "shuffle" in options:
        options["shuffle"] = bool(options["shuffle"])
    dataset = Stream(0, 10) if kind == "iterable" else range(10)
    DataLoader(dataset, **options)
    return "ok"


CHOICES = {"batch_size": [2, 0, -1], "shuffle": [True], "sampler": [1], "batch_sampler": [1], "num_workers": [1, -1],
           "prefetch_factor": [3, -1], "drop_last": [True], "timeout": [5, -1], "in_order": [False],
           "persistent_workers": [True]}


@pytest.mark.parametrize("kind", ["map", "iterable", "unbatched"])
def test_options_that_contradict_each_other_have_pythons_texts(ask, kind):
    """All choices of up to three options."""
    grid = []
    for count in (0, 1, 2, 3):
        for names in itertools.combinations(CHOICES, count):
            if kind == "unbatched" and ("batch_size" in names or "batch_sampler" in names):
                continue  # batch_size=None has taken that place
            for values in itertools.product(*(CHOICES[name] for name in names)):
                grid.append(tuple(zip(names, values)))
    lines = ask(("options", kind) + tuple(f"{name}={int(value)}" for name, value in options) for options in grid)
    for options, line in zip(grid, lines, strict=True):
        expected = error_or(lambda: make_python_loader(kind, options))
        for name, ours in (("batch_sampler", "a batch_sampler"), ("sampler", "a sampler")):  # which have no repr in C++
            marker = f" but got {name}="
            if marker in expected:
                expected = expected.split(marker)[0] + f" but got {ours}"
                break
        assert line == expected, (kind, options)


def test_chained_iterables_give_pythons_batches(ask):
    grid = [(workers, size, drop_last, lengths) for workers in (0, 1, 3) for size in (1, 2, 5) for drop_last in (False, True)
            for lengths in ((), (0,), (4,), (3, 0, 4), (1, 1, 1))]
    lines = ask(("chain", workers, size, drop_last, len(lengths)) + lengths for workers, size, drop_last, lengths in grid)
    for (workers, size, drop_last, lengths), line in zip(grid, lines, strict=True):
        dataset = ChainDataset([Stream(100 * i, length) for i, length in enumerate(lengths)])
        expected = [batch.tolist() for batch in DataLoader(dataset, size, drop_last=drop_last, num_workers=0)]
        # Each of Python's workers, which are processes and slow to start, has a copy of the dataset, and they take turns.
        expected = [batch for batch in expected for _ in range(max(workers, 1))]
        assert batches(line) == expected, (workers, size, drop_last, lengths)


def test_data_loader_options_do_not_change_pythons_batches(ask):
    """One real run with Python's worker processes, iterable and not, against as many threads."""
    [line] = ask([("chain", 2, 2, False, 2, 3, 2)])
    dataset = ChainDataset([Stream(0, 3), Stream(100, 2)])
    assert batches(line) == [batch.tolist() for batch in DataLoader(dataset, 2, num_workers=2, persistent_workers=True)]


def test_concatenated_datasets_have_pythons_examples_and_errors(ask):
    grid = [(lengths, index) for lengths in ((), (3,), (2, 0, 3), (0, 1)) for index in range(-7, 8)]
    lines = ask(("concat", len(lengths)) + lengths + (index,) for lengths, index in grid)
    for (lengths, index), line in zip(grid, lines, strict=True):
        expected = error_or(lambda: ConcatDataset([range(length) for length in lengths])[index])
        assert (line if line.startswith("error") else int(line)) == expected, (lengths, index)
