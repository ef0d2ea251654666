"""Functional collectives: values, gradients and gradients of gradients, bit for bit as PyTorch's."""
import pathlib
import sys

import pytest
import torch
from safetensors.torch import load_file

from harness import BUILD, run_ranks

PYTHON_RANK = pathlib.Path(__file__).with_name("functional_python_rank.py")


def results_of(folder, commands):
    files = [folder / f"{rank}.safetensors" for rank in range(len(commands))]
    for rank, (code, out, err) in enumerate(run_ranks([[*command, file] for command, file in zip(commands, files)],
                                                     {"PYTHONPATH": str(BUILD / "python")})):
        assert code == 0, f"rank {rank}:\n{out}{err}"
    return [load_file(file) for file in files]


@pytest.fixture(scope="module")
def pytorchs_results(tmp_path_factory):
    """What Python ranks alone give, by their number; run once for each."""
    known = {}

    def of(size):
        if size not in known:
            known[size] = results_of(tmp_path_factory.mktemp("pytorch"), [[sys.executable, PYTHON_RANK, "gloo"]] * size)
        return known[size]
    return of


@pytest.mark.tier_all_where(backend=["gloo"])
@pytest.mark.parametrize("backend, order", [
    ("gloo", ["cpp", "cpp"]),
    ("gloo", ["cpp", "cpp", "cpp"]),
    ("gloo", ["cpp", "python", "cpp"]),
    ("cohort", ["cpp", "python"]),
    ("cohort", ["python", "python"]),
])
def test_gradients_are_pytorchs(tmp_path, programs, python, pytorchs_results, backend, order):
    started = {"cpp": [programs / "functional_rank", backend], "python": [python, PYTHON_RANK, backend]}
    ours = results_of(tmp_path, [started[kind] for kind in order])
    for rank, (got, wanted) in enumerate(zip(ours, pytorchs_results(len(order)))):
        assert got.keys() == wanted.keys()
        assert sum(".gradient." in name for name in got) > 30
        different = [name for name in wanted if not torch.equal(got[name], wanted[name])]
        assert not different, f"rank {rank}"
