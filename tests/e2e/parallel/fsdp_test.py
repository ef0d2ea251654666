"""fully_shard beside PyTorch's FSDP2: the same model, weights and data, 20 steps of AdamW."""
import pathlib
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from harness import run_ranks

PYTHON_RANK = pathlib.Path(__file__).with_name("fsdp_python_rank.py")


def numbers_in(output):
    lines = [line.split() for line in output.splitlines()]
    return [[float(number) for number in words[1:]] for words in lines if words and words[0] in ("step", "value")]


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
    assert len(wanted) == len(got) == 20 + 7 * 13 + 13 + 13 * 5 + 5 + 5 * 3 + 3
    assert wanted[0] != wanted[19]
    for i, (ours, theirs) in enumerate(zip(got, wanted)):
        assert ours == pytest.approx(theirs, rel=2e-6, abs=1e-6), i
