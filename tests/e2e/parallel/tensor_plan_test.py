"""parallelize_module with tensor, sequence and loss parallelism: parameters after three steps are PyTorch's on the same weights."""
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


@pytest.fixture(scope="module")
def pythons_results(tmp_path_factory):
    known = {}

    def of(size):
        if size not in known:
            known[size] = results_of(tmp_path_factory.mktemp("python"), [sys.executable, PYTHON_RANK], size)
        return known[size]
    return of


@pytest.mark.tier_all_where(backend=["gloo"], size=[4])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("backend", ["gloo", "shm"])
def test_losses_parts_and_gradients_are_pythons(tmp_path, programs, pythons_results, backend, size):
    ours = results_of(tmp_path, [programs / "tensor_plan_rank", backend], size)
    for rank, (got, wanted) in enumerate(zip(ours, pythons_results(size))):
        assert got.keys() == wanted.keys()
        assert len(got) == 78
        for name, expected in wanted.items():
            assert got[name].shape == expected.shape, f"rank {rank}: {name}"
            torch.testing.assert_close(got[name], expected, rtol=1e-5, atol=1e-6,
                                       msg=lambda text, name=name: f"rank {rank}: {name}: {text}")
