"""Losses, outputs and gradients of pipelines are those of torch.distributed.pipelining on the same weights."""
import pathlib
import sys

import torch
from harness import run_ranks
from rounding import rounding

PYTHON_RANK = pathlib.Path(__file__).with_name("pipeline_python_rank.py")
# Of four blocks forward and backward, and of their microbatches.
SUMS = 4 * 2 * (8 + 16) + 4
SCHEDULES = ["1F1B", "Interleaved1F1B", "GPipe", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"]


def numbers_of(command):
    """What each rank prints: three numbers behind a name, of a tensor its sum, the sum of its magnitudes, and another one with weights
    up to 1."""
    results = []
    for rank, (code, out, err) in enumerate(run_ranks([command] * 2)):
        assert code == 0, f"rank {rank}:\n{out}{err}"
        assert "backward passes" not in err, err
        rows = [line.rsplit(" ", 3) for line in out.splitlines()]
        results.append({name: torch.tensor([float(number) for number in numbers], dtype=torch.float64) for name, *numbers in rows})
    return results


def require(what, got, wanted):
    torch.testing.assert_close(got, wanted, rtol=0, atol=rounding(torch.float32, SUMS, wanted[1]), msg=lambda text: f"{what}: {text}")


def is_cpps_own(name):
    """Uneven microbatches, and Python's eval() of V-shaped schedules fails."""
    return name.startswith("1F1B 10 ") or (name.endswith("evaluated") and name.startswith(("ZBV", "Dual")))


def test_gradients_are_pythons(programs, golden):
    oracle = golden(__file__, lambda: numbers_of([sys.executable, PYTHON_RANK, *SCHEDULES]), require, [PYTHON_RANK], SCHEDULES)
    ours = numbers_of([programs / "pipeline_rank"])
    for rank in ours:
        assert len(rank) > 50 and any(name.startswith("1F1B 10 ") for name in rank)
    oracle.compare([{name: numbers for name, numbers in rank.items() if not is_cpps_own(name)} for rank in ours])
