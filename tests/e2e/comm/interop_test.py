"""C++ ranks and Python ranks in one job, on Gloo and on our backends: they meet through the same store keys and agree on every operation."""
import pathlib

import pytest
import torch
from safetensors.torch import load_file

from harness import BUILD, free_port, run_ranks

PYTHON_RANK = pathlib.Path(__file__).with_name("interop_python_rank.py")


def numbers(count, rank, dtype=torch.float):
    return torch.arange(count).to(dtype) + 10 * rank


def total(count, ranks, dtype=torch.float):
    return sum(numbers(count, rank, dtype) for rank in ranks)


def expected(rank, size):
    last, everyone = size - 1, range(size)
    parts = total(4 * size, everyone).chunk(size)
    gathered = torch.stack([numbers(3, other) for other in everyone])
    results = {
        "all_reduce.sum": total(6, everyone),
        "all_reduce.max": numbers(1001, last, torch.long),
        "all_reduce.bfloat16": total(5, everyone, torch.bfloat16),
        "broadcast": numbers(7, last, torch.double),
        "all_gather": gathered,
        "all_gather_into_tensor": gathered.flatten(),
        "reduce_scatter": parts[rank],
        "reduce_scatter_tensor": parts[rank],
        "recv": numbers(6, (rank - 1) % size),
        "irecv": numbers(2, (rank - 1) % size, torch.long),
        "all.all_reduce": total(3, everyone),
    }
    if rank == 0:
        results["recv_any"] = torch.tensor([10 * other for other in everyone])
    if rank in (0, last):
        results |= {"ends.all_reduce": total(3, (0, last)), "ends.broadcast": numbers(3, last)}
    uneven = [sum(other + before for before in range(rank)) for other in everyone]
    results |= {
        "scatter": numbers(2 * size, last, torch.double).chunk(size)[rank],
        "all_to_all": torch.cat([numbers(2 * size, other).chunk(size)[rank] for other in everyone]),
        "all_to_all.uneven": torch.cat([numbers(uneven[other] + rank + other, other)[uneven[other]:] for other in everyone]),
        "coalesced.first": total(3, everyone),
        "coalesced.second": total(5, everyone),
        "batch": numbers(3, (rank - 1) % size),
    }
    if rank < 2:
        results["local.all_reduce"] = total(3, (0, 1))
    if size % 2 == 0:
        results["pair.all_reduce"] = total(3, (rank // 2 * 2, rank // 2 * 2 + 1))
    if rank == last:
        results["reduce"] = torch.stack([numbers(4, other, torch.int32) for other in everyone]).prod(0, dtype=torch.int32)
        results["gather"] = gathered
        results["alone.all_reduce"] = numbers(3, last)
    return results


@pytest.mark.parametrize("method, order", [
    ("env", ["python", "cpp"]),
    ("env", ["cpp", "python"]),
    ("env", ["python", "cpp", "cpp"]),
    ("tcp", ["cpp", "python", "python"]),
    ("tcp", ["python", "cpp"]),
    ("file", ["cpp", "python", "cpp"]),
    ("env", ["cpp", "python", "cpp", "python"]),
])
def test_collectives_between_cpp_and_python(tmp_path, programs, python, method, order):
    run_job(tmp_path, {"cpp": [programs / "interop_rank"], "python": [python, PYTHON_RANK]}, order, method=method)


@pytest.mark.parametrize("backend, order", [
    ("cohort", ["python", "cpp"]),
    ("cohort", ["cpp", "python"]),
    ("cohort", ["cpp", "python", "cpp"]),
    ("cohort", ["python", "cpp", "python"]),
    ("shm", ["cpp", "python"]),
    ("shm", ["python", "cpp", "cpp"]),
])
def test_collectives_on_our_backends(tmp_path, programs, python, backend, order):
    run_job(tmp_path, {"cpp": [programs / "interop_rank"], "python": [python, PYTHON_RANK]}, order, backend=backend)


# Two ranks: PyTorch compares numbers that count sends and receives too, so ranks must have made equally many of them.
@pytest.mark.parametrize("order", [["python", "cpp"], ["cpp", "python"]])
def test_every_call_compared_between_cpp_and_python(tmp_path, programs, python, order):
    run_job(tmp_path, {"cpp": [programs / "interop_rank"], "python": [python, PYTHON_RANK]}, order,
            TORCH_DISTRIBUTED_DEBUG="DETAIL")


def run_job(tmp_path, started, order, method="env", backend="gloo", **environment):
    url = {"env": "env://", "tcp": f"tcp://127.0.0.1:{free_port()}", "file": f"file://{tmp_path}/store"}[method]
    commands = [[*started[kind], url, tmp_path / f"{rank}.safetensors", backend] for rank, kind in enumerate(order)]
    environment["PYTHONPATH"] = str(BUILD / "python")
    for rank, (code, out, err) in enumerate(run_ranks(commands, environment)):
        assert code == 0, f"rank {rank}, {order[rank]}:\n{out}{err}"
    for rank, kind in enumerate(order):
        results = load_file(tmp_path / f"{rank}.safetensors")
        wanted = expected(rank, len(order))
        assert results.keys() == wanted.keys()
        for name, tensor in wanted.items():
            assert results[name].dtype == tensor.dtype and torch.equal(results[name], tensor), f"{name}, rank {rank}, {kind}"
