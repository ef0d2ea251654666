"""fully_shard beside PyTorch's FSDP2: the same model, weights and data, 20 steps of AdamW."""
import pathlib
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from harness import run_ranks
from rounding import rounding

PYTHON_RANK = pathlib.Path(__file__).with_name("fsdp_python_rank.py")
STEPS = 20


def numbers_in(output):
    lines = [line.split() for line in output.splitlines()]
    return [[float(number) for number in words[1:]] for words in lines if words and words[0] in ("step", "value")]


def assert_numbers_alike(got, wanted, operations):
    """As numbers_in() gives them: losses, norms, and parameters of which none is larger than 1."""
    assert len(got) == len(wanted)
    for i, (ours, theirs) in enumerate(zip(got, wanted)):
        for one, other in zip(ours, theirs, strict=True):
            assert one == pytest.approx(other, rel=0, abs=rounding(torch.float32, operations, max(1, abs(other)))), i


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
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(7, 13), nn.Tanh(), nn.Linear(13, 5), nn.Tanh(), nn.Linear(5, 3))
    path = tmp_path_factory.mktemp("weights") / "weights.safetensors"
    save_file(net.state_dict(), path)
    return path


@pytest.mark.parametrize("size, words", [(1, ""), (2, "nested"), (2, "frozen clip"), (3, "accumulate"), (4, "clip nested")])
def test_losses_norms_and_parameters_are_pytorchs(programs, weights, size, words):
    wanted = numbers_of([sys.executable, PYTHON_RANK, weights, *words.split()], size)
    got = numbers_of([programs / "fsdp_train", weights, *words.split()], size)
    assert len(wanted) == len(got) == STEPS + 7 * 13 + 13 + 13 * 5 + 5 + 5 * 3 + 3
    assert wanted[0] != wanted[STEPS - 1]
    assert_numbers_alike(got, wanted, STEPS * 2 * (7 + 13 + 5))
