"""Losses, outputs and gradients of pipelines are those of torch.distributed.pipelining on the same weights."""
import pathlib
import sys

import pytest
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
        results.append({name: [float(number) for number in numbers] for name, *numbers in rows})
    return results


def test_gradients_are_pythons(programs):
    ours, pythons = numbers_of([programs / "pipeline_rank"]), numbers_of([sys.executable, PYTHON_RANK, *SCHEDULES])
    for rank in range(2):
        assert len(pythons[rank]) > 50
        uneven = {name for name in ours[rank] if name.startswith("1F1B 10 ")}
        # Python's eval() of V-shaped schedules fails.
        more = {name for name in ours[rank] if name.endswith("evaluated") and name.startswith(("ZBV", "Dual"))}
        assert uneven and set(ours[rank]) - uneven - more == set(pythons[rank])
        for name, numbers in pythons[rank].items():
            assert ours[rank][name] == pytest.approx(numbers, rel=0, abs=rounding(torch.float32, SUMS, numbers[1])), name
