"""DTensors are PyTorch's: the same program in both languages."""
import pathlib
import sys

from harness import run_ranks

PYTHON_RANK = pathlib.Path(__file__).with_name("dtensor_python_rank.py")


def lines_of(command):
    """Of each rank, where parts of a text may be joined by any space."""
    results = []
    for rank, (code, out, err) in enumerate(run_ranks([command] * 2)):
        assert code == 0, f"rank {rank}:\n{out}{err}"
        results.append([" ".join(line.split()) for line in out.splitlines()])
    return results


def test_moves_operations_and_gradients_are_pythons(programs):
    ours = lines_of([programs / "dtensor_rank"])
    pythons = lines_of([sys.executable, PYTHON_RANK])
    assert len(pythons[0]) > 60 and pythons[0] != pythons[1]
    for rank in range(2):
        assert ours[rank] == pythons[rank], f"rank {rank}"
