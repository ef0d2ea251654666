"""Tensor-parallel layers, the loss of logits in parts and context parallelism on each rank, as PyTorch has them on the same data."""
import functools
import pathlib
import sys

import pytest
import torch
from safetensors.torch import load_file

from harness import run_ranks

PYTHON_RANK = pathlib.Path(__file__).with_name("model_parallel_python_rank.py")


def results_of(folder, commands):
    files = [folder / f"{rank}.safetensors" for rank in range(len(commands))]
    for rank, (code, out, err) in enumerate(run_ranks([[*command, file] for command, file in zip(commands, files)])):
        assert code == 0, f"rank {rank}:\n{out}{err}"
    return [load_file(file) for file in files]


def require(what, got, wanted):
    is_copied = ": buffers" in what or ": embedding" in what
    near = 0 if is_copied else 1e-5
    torch.testing.assert_close(got, wanted, rtol=near, atol=near, msg=lambda text: f"{what}: {text}")


@pytest.fixture(scope="module")
def oracle(golden, tmp_path_factory):
    """What so many Python ranks give."""
    @functools.cache
    def of(size):
        def compute():
            return results_of(tmp_path_factory.mktemp("python"), [[sys.executable, PYTHON_RANK]] * size)
        return golden(__file__, compute, require, [PYTHON_RANK], part=f"{size}_ranks", every=7)
    return of


@pytest.mark.tier_all_where(backend=["gloo"], size=[4])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("backend", ["gloo", "shm"])
def test_values_and_gradients_are_pythons(tmp_path, programs, oracle, backend, size):
    ours = results_of(tmp_path, [[programs / "model_parallel_rank", backend]] * size)
    assert min(len(rank) for rank in ours) > 60
    oracle(size).compare(ours)
