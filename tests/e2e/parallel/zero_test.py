"""ZeroRedundancyOptimizer against PyTorch's: who owns what, the parameters after ten steps, and the consolidated state."""
import pathlib
import random
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.optim import ZeroRedundancyOptimizer

from harness import run_ranks
from rounding import rounding

PYTHON_RANK = pathlib.Path(__file__).with_name("zero_python_rank.py")
SIZE = 4
# Of the layers forward and backward and of the rows, in each of ten steps.
SUMS = 10 * (2 * (6 + 10 + 7) + 5)


def results_of(folder, command):
    files = [folder / f"{rank}.safetensors" for rank in range(SIZE)]
    for rank, (code, out, err) in enumerate(run_ranks([[*command, file] for file in files])):
        assert code == 0, f"rank {rank}:\n{out}{err}"
    return [load_file(file) for file in files]


def require(what, got, wanted):
    """Python counts steps in floating point."""
    near = rounding(torch.float32, SUMS, wanted.abs().max())
    torch.testing.assert_close(got.double(), wanted.double(), rtol=0, atol=near, msg=lambda text: f"{what}: {text}")


@pytest.fixture(scope="module")
def oracle(golden, tmp_path_factory):
    def compute():
        return results_of(tmp_path_factory.mktemp("pytorch"), [sys.executable, PYTHON_RANK])
    return golden(__file__, compute, require, [PYTHON_RANK])


@pytest.mark.tier_all_where(backend=["gloo"])
@pytest.mark.parametrize("backend", ["gloo", "shm"])
def test_training_gives_pythons_numbers(tmp_path, programs, oracle, backend):
    ours = results_of(tmp_path, [programs / "zero_rank", backend])
    # Options stand in Python's groups.
    oracle.compare([{name: tensor for name, tensor in rank.items() if ".param_groups." not in name} for rank in ours])


def test_the_oracle_trains(oracle):
    """Ranks of a group agree, optimizers and numbers of ranks do not, and every rank of four owns something."""
    first, last = oracle.ranks[0], oracle.ranks[-1]
    assert torch.equal(first["adam.4.views.value.0"], last["adam.4.views.value.0"])
    for other in ("adamw.4.views.value.0", "adam.3.views.value.0"):
        assert not torch.allclose(last["adam.4.views.value.0"], last[other], rtol=0, atol=1e-4)
    assert {int(first[f"sgd.4.views.owner.{i}"]) for i in range(6)} == {0, 1, 2, 3}
    assert {len(results) for results in oracle.ranks[:-1]} == {6 * 12, 2 * 6 * 12, 3 * 6 * 12}  # the last has states


def pythons_partition(sizes, ranks):
    """[rank][group]: places. Parameters without memory, in an object without a process group."""
    zero = ZeroRedundancyOptimizer.__new__(ZeroRedundancyOptimizer)
    zero.world_size, zero._partition_parameters_cache = ranks, []
    zero.param_groups = [{"params": [torch.empty(size, device="meta") for size in group]} for group in sizes]
    places = [{id(param): i for i, param in enumerate(group["params"])} for group in zero.param_groups]
    return [[[places[i][id(param)] for param in group["params"]] for i, group in enumerate(groups)]
            for groups in zero._partition_parameters()]


def test_owners_are_pythons(programs):
    draw = random.Random(12)
    cases = [(ranks, [[draw.choice((0, 1, 2, 7, draw.randrange(100))) for _ in range(draw.randrange(1, 12))]
                      for _ in range(draw.randrange(1, 4))]) for _ in range(200) for ranks in range(1, 5)]
    lines = [" | ".join([str(ranks), *(",".join(map(str, group)) for group in sizes)]) for ranks, sizes in cases]
    done = subprocess.run([programs / "zero_owners"], input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=300,
                          check=True)
    for line, answer, (ranks, sizes) in zip(lines, done.stdout.splitlines(), cases, strict=True):
        ours = [[[int(place) for place in group.split(",") if place] for group in rank.split("|")] for rank in answer.split(";")]
        assert ours == pythons_partition(sizes, ranks), line
