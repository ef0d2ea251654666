"""Gradient clipping and model averaging, bit for bit as PyTorch's."""
import pathlib
import sys

import pytest
import torch
from safetensors.torch import load_file

from harness import run_ranks

PYTHON_RANK = pathlib.Path(__file__).with_name("optim_python_rank.py")
SIZE = 4


def results_of(folder, command):
    files = [folder / f"{rank}.safetensors" for rank in range(SIZE)]
    for rank, (code, out, err) in enumerate(run_ranks([[*command, file] for file in files])):
        assert code == 0, f"rank {rank}:\n{out}{err}"
    return [load_file(file) for file in files]


@pytest.fixture(scope="module")
def pytorchs_results(tmp_path_factory):
    return results_of(tmp_path_factory.mktemp("pytorch"), [sys.executable, PYTHON_RANK])


@pytest.mark.tier_all_where(backend=["gloo"])
@pytest.mark.parametrize("backend", ["gloo", "shm"])
def test_numbers_are_pytorchs(tmp_path, programs, pytorchs_results, backend):
    ours = results_of(tmp_path, [programs / "optim_rank", backend])
    for rank, (got, wanted) in enumerate(zip(ours, pytorchs_results)):
        assert got.keys() == wanted.keys()
        assert {name: got[name].dtype for name in got} == {name: wanted[name].dtype for name in wanted}
        different = [name for name in wanted if not torch.equal(got[name], wanted[name])]
        if backend == "shm":  # which adds four ranks' numbers in another order
            assert not [name for name in different if name.startswith(("clip", "value", "with_norm", "total"))], f"rank {rank}"
            different = [name for name in different if not torch.allclose(got[name], wanted[name], rtol=1e-6, atol=1e-7)]
        assert not different, f"rank {rank}"


def test_the_ranks_have_met(pytorchs_results):
    """The oracle itself: models differ between averages, and agree after one."""
    first, last = pytorchs_results[0], pytorchs_results[-1]
    assert not torch.equal(first["periodic.3.0"], last["periodic.3.0"])
    assert torch.equal(first["periodic.5.0"], last["periodic.5.0"])
    assert not torch.equal(first["hierarchical.2.0"], last["hierarchical.2.0"])
    assert torch.equal(first["hierarchical.2.0"], pytorchs_results[1]["hierarchical.2.0"])
    assert torch.equal(first["hierarchical.4.0"], last["hierarchical.4.0"])
