"""fully_shard with dp_mesh_dims of DTensors on the whole mesh of 2 x 2 ranks: losses, gradient norms, gradients and parameters after
three clipped steps are PyTorch's on the same weights and data, rank by rank."""
import pathlib
import sys

import pytest
import torch

from fsdp_tensor_test import results_of

PYTHON_RANK = pathlib.Path(__file__).with_name("fsdp_dims_python_rank.py")


def require(what, got, wanted):
    torch.testing.assert_close(got.float(), wanted, rtol=1e-5, atol=2e-6, msg=lambda text: f"{what}: {text}")


@pytest.fixture(scope="module")
def oracle(golden, tmp_path_factory):
    def compute():
        return results_of(tmp_path_factory.mktemp("python"), [sys.executable, PYTHON_RANK])
    return golden(__file__, compute, require, [PYTHON_RANK])


@pytest.mark.tier_all_where(backend=["gloo"])
@pytest.mark.parametrize("backend", ["gloo", "shm"])
def test_losses_norms_gradients_and_parameters_are_pythons(tmp_path, programs, oracle, backend):
    ours = results_of(tmp_path, [programs / "fsdp_dims_rank", backend])
    assert [len(rank) for rank in ours] == 4 * [2 * (4 * (3 * 6 + 6) + 3)]
    for memory in ("one.", "gathered."):
        oracle.compare([{name.removeprefix(memory): value for name, value in rank.items() if name.startswith(memory)} for rank in ours])
