"""parallelize_module with tensor, sequence and loss parallelism: parameters after three steps are PyTorch's on the same weights."""
import functools
import pathlib
import sys

import pytest
import torch
from safetensors.torch import load_file

from harness import run_ranks

PYTHON_RANK = pathlib.Path(__file__).with_name("tensor_plan_python_rank.py")


def results_of(folder, command, size):
    files = [folder / f"{rank}.safetensors" for rank in range(size)]
    for rank, (code, out, err) in enumerate(run_ranks([[*command, file] for file in files])):
        assert code == 0, f"rank {rank}:\n{out}{err}"
    return [load_file(file) for file in files]


def require(what, got, wanted):
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6, msg=lambda text: f"{what}: {text}")


@pytest.fixture(scope="module")
def oracle(golden, tmp_path_factory):
    @functools.cache
    def of(size):
        def compute():
            return results_of(tmp_path_factory.mktemp("python"), [sys.executable, PYTHON_RANK], size)
        return golden(__file__, compute, require, [PYTHON_RANK], part=f"{size}_ranks", every=7)
    return of


@pytest.mark.tier_all_where(backend=["gloo"], size=[4])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("backend", ["gloo", "shm"])
def test_losses_parts_and_gradients_are_pythons(tmp_path, programs, oracle, backend, size):
    ours = results_of(tmp_path, [programs / "tensor_plan_rank", backend], size)
    assert [len(rank) for rank in ours] == size * [78]
    oracle(size).compare(ours)
