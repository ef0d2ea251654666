"""fully_shard over parallelize_module on 2 x 2 ranks: losses, gradient norms, gradients and parameters after three clipped steps are
PyTorch's on the same weights and data, rank by rank."""
import pathlib
import sys

import pytest
import torch
from safetensors.torch import load_file

from harness import run_ranks

PYTHON_RANK = pathlib.Path(__file__).with_name("fsdp_tensor_python_rank.py")


def results_of(folder, command):
    files = [folder / f"{rank}.safetensors" for rank in range(4)]
    for rank, (code, out, err) in enumerate(run_ranks([[*command, file] for file in files], timeout=300)):
        assert code == 0, f"rank {rank}:\n{out}{err}"
    return [load_file(file) for file in files]


def require(what, got, wanted):
    torch.testing.assert_close(got.float(), wanted, rtol=1e-5, atol=2e-6, msg=lambda text: f"{what}: {text}")


@pytest.fixture(scope="module")
def oracle(golden, tmp_path_factory):
    def compute():
        return results_of(tmp_path_factory.mktemp("python"), [sys.executable, PYTHON_RANK])
    return golden(__file__, compute, require, [PYTHON_RANK], every=7)


@pytest.mark.tier_all_where(backend=["gloo"])
@pytest.mark.parametrize("backend", ["gloo", "shm"])
def test_losses_norms_gradients_and_parameters_are_pythons(tmp_path, programs, oracle, backend):
    ours = results_of(tmp_path, [programs / "fsdp_tensor_rank", backend])
    assert [len(rank) for rank in ours] == 4 * [2 * (4 * (2 * 18 + 6) + 3)]
    for memory in ("one.", "gathered."):
        oracle.compare([{name.removeprefix(memory): value for name, value in rank.items() if name.startswith(memory)} for rank in ours])
