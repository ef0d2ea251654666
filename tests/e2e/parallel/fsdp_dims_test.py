"""fully_shard with dp_mesh_dims of DTensors on the whole mesh of 2 x 2 ranks: losses, gradient norms, gradients and parameters after
three clipped steps are PyTorch's on the same weights and data, rank by rank."""
import pathlib
import sys

import pytest
import torch

from fsdp_tensor_test import results_of

PYTHON_RANK = pathlib.Path(__file__).with_name("fsdp_dims_python_rank.py")


@pytest.fixture(scope="module")
def pythons_results(tmp_path_factory):
    return results_of(tmp_path_factory.mktemp("python"), [sys.executable, PYTHON_RANK])


@pytest.mark.tier_all_where(backend=["gloo"])
@pytest.mark.parametrize("backend", ["gloo", "shm"])
def test_losses_norms_gradients_and_parameters_are_pythons(tmp_path, programs, pythons_results, backend):
    ours = results_of(tmp_path, [programs / "fsdp_dims_rank", backend])
    for rank, (got, wanted) in enumerate(zip(ours, pythons_results)):
        assert len(wanted) == 4 * (3 * 6 + 6) + 3
        assert got.keys() == {f"{memory}.{name}" for memory in ("one", "gathered") for name in wanted}
        for name, value in got.items():
            expected = wanted[name.partition(".")[2]]
            torch.testing.assert_close(value.float(), expected, rtol=1e-5, atol=2e-6,
                                       msg=lambda text, name=name: f"rank {rank}: {name}: {text}")
