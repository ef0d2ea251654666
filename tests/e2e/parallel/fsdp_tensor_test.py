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


@pytest.fixture(scope="module")
def pythons_results(tmp_path_factory):
    return results_of(tmp_path_factory.mktemp("python"), [sys.executable, PYTHON_RANK])


@pytest.mark.tier_all_where(backend=["gloo"])
@pytest.mark.parametrize("backend", ["gloo", "shm"])
def test_losses_norms_gradients_and_parameters_are_pythons(tmp_path, programs, pythons_results, backend):
    ours = results_of(tmp_path, [programs / "fsdp_tensor_rank", backend])
    for rank, (got, wanted) in enumerate(zip(ours, pythons_results)):
        assert len(wanted) == 4 * (2 * 18 + 6) + 3
        assert got.keys() == {f"{memory}.{name}" for memory in ("one", "gathered") for name in wanted}
        for name, value in got.items():
            expected = wanted[name.partition(".")[2]]
            torch.testing.assert_close(value.float(), expected, rtol=1e-5, atol=2e-6,
                                       msg=lambda text, name=name: f"rank {rank}: {name}: {text}")
