"""Tensor-parallel layers, the loss of logits in parts and context parallelism on each rank, as PyTorch has them on the same data."""
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


@pytest.fixture(scope="module")
def pythons_results(tmp_path_factory):
    """What Python ranks give, by their number; run once for each."""
    known = {}

    def of(size):
        if size not in known:
            known[size] = results_of(tmp_path_factory.mktemp("python"), [[sys.executable, PYTHON_RANK]] * size)
        return known[size]
    return of


@pytest.mark.tier_all_where(backend=["gloo"], size=[4])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("backend", ["gloo", "shm"])
def test_values_and_gradients_are_pythons(tmp_path, programs, pythons_results, backend, size):
    ours = results_of(tmp_path, [[programs / "model_parallel_rank", backend]] * size)
    for rank, (got, wanted) in enumerate(zip(ours, pythons_results(size))):
        assert got.keys() == wanted.keys()
        assert len(got) > 60
        for name, expected in wanted.items():
            assert got[name].shape == expected.shape, f"rank {rank}: {name}"
            exact = name.startswith(("buffers", "embedding"))
            torch.testing.assert_close(got[name], expected, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-5,
                                       msg=lambda text, name=name: f"rank {rank}: {name}: {text}")
