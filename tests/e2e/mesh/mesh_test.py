"""Meshes, shards and their errors are PyTorch's: the same program in both languages, and the same cases of shard arithmetic."""
import itertools
import pathlib
import subprocess
import sys

from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

from harness import run_ranks

PYTHON_RANK = pathlib.Path(__file__).with_name("mesh_python_rank.py")
SIZE = 8
PLACEMENTS = {"R": Replicate(), "P": Partial(), "S0": Shard(0), "S1": Shard(1),
              **{f"_S0:{factor}": _StridedShard(0, split_factor=factor) for factor in (1, 2, 3)}}


def lines_of(command):
    """Of each rank, by name, where parts of a text may be joined by any space."""
    results = []
    for rank, (code, out, err) in enumerate(run_ranks([command] * SIZE)):
        assert code == 0, f"rank {rank}:\n{out}{err}"
        results.append([" ".join(line.split()) for line in out.splitlines()])
    return results


def test_meshes_tensors_and_errors_are_pythons(programs):
    ours = lines_of([programs / "mesh_rank"])
    pythons = lines_of([sys.executable, PYTHON_RANK])
    assert len(pythons[0]) > 60 and pythons[0] != pythons[1]
    for rank in range(SIZE):
        assert ours[rank] == pythons[rank], f"rank {rank}"


def spaces():
    """Every size, coordinate and placement of small meshes."""
    for size, ranks in itertools.product(range(10), range(1, 6)):
        yield (size,), (ranks,), ["R", "P", "S0", "_S0:1", "_S0:2", "_S0:3"]
    for size, mesh in itertools.product(range(10), itertools.product((1, 2, 3), repeat=2)):
        yield (size, 5), mesh, ["R", "S0", "S1", "_S0:2"]
    for size, mesh in itertools.product(range(10), [(2, 2, 2), (1, 3, 2)]):
        yield (size,), mesh, ["R", "S0", "_S0:2"]


def cases():
    for shape, mesh, names in spaces():
        for placements in itertools.product(names, repeat=len(mesh)):
            for coordinate in itertools.product(*(range(ranks) for ranks in mesh)):
                yield shape, mesh, coordinate, placements


def text(numbers):
    return ",".join(str(number) for number in numbers)


def test_every_part_is_pythons(programs):
    all_cases = list(cases())
    lines = [" | ".join([text(shape), text(mesh), text(coordinate), " ".join(placements)]) for shape, mesh, coordinate, placements in all_cases]
    done = subprocess.run([programs / "shard_ranges"], input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=300, check=True)
    answers = done.stdout.splitlines()
    assert len(answers) == len(all_cases) > 10000
    for (shape, mesh, coordinate, placements), line, answer in zip(all_cases, lines, answers):
        wanted = _compute_local_shape_and_global_offset(shape, mesh, list(coordinate), [PLACEMENTS[name] for name in placements])
        assert answer == f"{text(wanted[0])} | {text(wanted[1])}", line
