"""fully_shard beside PyTorch's FSDP2: the same model, weights and data, 20 steps of AdamW."""
import pathlib
import sys

import pytest
import torch

from fsdp_python_rank import write_weights
from harness import run_ranks
from rounding import rounding

PYTHON_RANK = pathlib.Path(__file__).with_name("fsdp_python_rank.py")
STEPS = 20
CASES = [(1, ""), (2, "nested"), (2, "frozen clip"), (3, "accumulate"), (4, "clip nested")]


def numbers_in(output):
    """A loss and a norm of each step, and then parameters."""
    lines = [line.split() for line in output.splitlines()]
    return torch.tensor([float(number) for words in lines if words and words[0] in ("step", "value") for number in words[1:]], dtype=torch.float64)


def assert_numbers_alike(what, got, wanted, operations):
    """As numbers_in() gives them: losses, norms, and parameters of which none is larger than 1."""
    near = rounding(torch.float32, operations, 1) * wanted.abs().clamp(min=1)
    far = ~((got - wanted).abs() <= near)
    assert not far.any(), f"{what}: " + ", ".join(f"{got[i]} against {wanted[i]} at {i}" for i in far.nonzero().flatten()[:9])


def output_of(command, size):
    """Of rank 0."""
    results = run_ranks([command for _ in range(size)])
    for rank, (code, out, err) in enumerate(results):
        assert code == 0, f"rank {rank}:\n{out}{err}"
    return results[0][1]


def numbers_of(command, size):
    return numbers_in(output_of(command, size))


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "weights.safetensors"
    write_weights(path)
    return path


@pytest.fixture(scope="module")
def oracle(golden, weights):
    def compute():
        return [{f"{size} {words}": numbers_of([sys.executable, PYTHON_RANK, weights, *words.split()], size) for size, words in CASES}]

    def require(what, got, wanted):
        assert_numbers_alike(what, got, wanted, STEPS * 2 * (7 + 13 + 5))
    return golden(__file__, compute, require, [PYTHON_RANK], CASES)


@pytest.mark.parametrize("size, words", CASES)
def test_losses_norms_and_parameters_are_pytorchs(programs, weights, oracle, size, words):
    name = f"{size} {words}"
    got = numbers_of([programs / "fsdp_train", weights, *words.split()], size)
    assert len(got) == STEPS * 2 + 7 * 13 + 13 + 13 * 5 + 5 + 5 * 3 + 3
    assert got[0] != got[2 * (STEPS - 1)]
    oracle.only(name).compare([{name: got}])
