"""C++ DDP against Python's DDP: same weights, data and buckets, so losses, gradients, parameters, buffers and bucket lists
must be the same bits, step by step, on every rank."""
import itertools
import os
import pathlib
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import ddp_reference
from harness import BUILD, run_ranks
from process_tree import run

REFERENCE = pathlib.Path(ddp_reference.__file__)
WORLD_SIZES = [1, 2, 3, 4]
HANG_LIMIT = 300
# Cases whose optimizer is the same on both sides.
CASES = [name for name in ddp_reference.CASES if name != "mlp_adamw_of_python"]
# For what two ranks on Gloo have shown in full, here of three ranks: every strategy of reduction, and of the rest what comes by another way.
FEW_CASES = [name for name in CASES if not name.startswith(("option_", "hook_", "precision"))
             or name in ("hook_allreduce", "hook_fp16_unused", "hook_powersgd", "option_cap_list", "option_batched_copy", "precision_float_sum")]
# What depends on the order of the gradients in a bucket, which the reference engine never changes.
IN_READY_ORDER = ("hook_powersgd", "hook_batched_powersgd", "hook_quantize_perchannel")


def cases_of(world_size):
    return [*FEW_CASES, "mlp_adamw_of_python"] if world_size == 3 else ddp_reference.cases_of(world_size)


def python_rank(python, cases, results):
    return [python, REFERENCE, cases, results]


def cpp_rank(programs, cases, results, *engines):
    return [programs / "ddp_train", cases, results, *engines]


def run_all(commands, backend="gloo", overlap="1"):
    results = run_ranks(commands, {"DDP_BACKEND": backend, "COHORT_DDP_OVERLAP": overlap, "PYTHONPATH": str(BUILD / "python")}, timeout=HANG_LIMIT)
    failures = [f"rank {rank} of {len(commands)} ended with {code}:\n{out}{err}"
                for rank, (code, out, err) in enumerate(results) if code != 0]
    assert not failures, "\n".join(failures)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Trains all cases with Python and C++, once per world size; returns the folder of the results."""
    folders = {}

    def of(world_size):
        if world_size not in folders:
            root = tmp_path_factory.mktemp(f"ranks{world_size}")
            cases, results = root / "cases", root / "results"
            results.mkdir()
            ddp_reference.write_cases(cases, world_size, cases_of(world_size))
            run_all([python_rank(sys.executable, cases, results)] * world_size)
            engines = ["cohort", "c10d", "inline"] if world_size <= 2 else ["cohort", "c10d"]
            run_all([cpp_rank(BUILD / "bin" / "tests", cases, results, *engines)] * world_size)
            folders[world_size] = root
        return folders[world_size]

    return of


def buckets_of(path):
    with safe_open(path, "pt") as file:
        return file.metadata()["buckets"]


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def unequal(ours, theirs):
    """Names of the tensors that differ in dtype, shape or any bit, each with the first step in which it does."""
    assert ours.keys() == theirs.keys()
    found = []
    for name, a in ours.items():
        b = theirs[name]
        if a.dtype != b.dtype or a.shape != b.shape:
            found.append(f"{name}: {a.dtype} {tuple(a.shape)} against {b.dtype} {tuple(b.shape)}")
        elif not torch.equal(bits(a), bits(b)):
            step = next(i for i in range(len(a)) if not torch.equal(bits(a[i]), bits(b[i])))
            found.append(f"{name}: at {step}, by {(a[step].double() - b[step].double()).abs().max():.3g}")
    return found


def check_bitwise(results, case, engine, world_size, other="python"):
    for rank in range(world_size):
        ours, theirs = (results / f"{case}.{name}.{rank}.safetensors" for name in (engine, other))
        assert unequal(load_file(ours), load_file(theirs)) == [], f"rank {rank}"
        if engine != "inline":
            assert buckets_of(ours) == buckets_of(theirs), f"rank {rank}"


@pytest.mark.tier_all_where(world_size=[1, 3, 4], engine=["c10d"])
@pytest.mark.parametrize("world_size, engine, case", [
    (world_size, engine, case) for world_size, engine, case in itertools.product(WORLD_SIZES, ["cohort", "c10d"], CASES)
    if case in cases_of(world_size) and not (engine == "c10d" and case.startswith(("option_fused", "precision")))
    and (world_size, engine, case) != (1, "cohort", "transformer_sparse")])  # has a test of its own
def test_training_equals_pythons_bit_by_bit(trained, world_size, engine, case):
    check_bitwise(trained(world_size) / "results", case, engine, world_size)


def logging_data(path):
    with safe_open(path, "pt") as file:
        return dict(line.split("=", 1) for line in file.metadata()["logging"].splitlines())


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith(("option_fused", "join"))])
def test_logging_data_are_pythons(trained, case):
    """But for times, names of hooks, which functions do not have, and unused parameters, which are those of the last step here and of
    the last one noted there."""
    for rank in range(2):
        ours, theirs = (logging_data(trained(2) / "results" / f"{case}.{name}.{rank}.safetensors") for name in ("cohort", "python"))
        assert ours.keys() == theirs.keys() - {"gloo_num_threads"}, f"rank {rank}"
        for name in ours.keys() - {"comm_hook", "master_port", "unused_parameter_size"}:
            if "_time" not in name:
                assert ours[name] == theirs[name], f"rank {rank}: {name}"


@pytest.fixture(scope="session")
def trained_on_shm(trained, tmp_path_factory):
    """The same with C++ ranks on backend shm. With two ranks Python's results on Gloo are the oracle, since a sum of two has one
    order; with three its DDP on our backend, whose sums go in rank order."""
    folders = {}

    def of(world_size):
        if world_size not in folders:
            results = folders[world_size] = tmp_path_factory.mktemp(f"shm{world_size}")
            cases = trained(world_size) / "cases"
            if world_size > 2:
                cases = tmp_path_factory.mktemp("few") / "cases"
                ddp_reference.write_cases(cases, world_size, FEW_CASES)
            run_all([cpp_rank(BUILD / "bin" / "tests", cases, results, "cohort")] * world_size, "shm", overlap=str(world_size % 2))
            if world_size > 2:
                run_all([python_rank(sys.executable, cases, results)] * world_size, "cohort")
            for path in (trained(world_size) / "results").glob("*.python.*") if world_size == 2 else ():
                (results / path.name).symlink_to(path)
        return folders[world_size]

    return of


@pytest.mark.tier_all_where(world_size=[3])
@pytest.mark.parametrize("world_size, case", [(2, case) for case in CASES] + [(3, case) for case in FEW_CASES])
def test_training_on_shared_memory_equals_pythons_bit_by_bit(trained_on_shm, world_size, case):
    check_bitwise(trained_on_shm(world_size), case, "cohort", world_size)


@pytest.mark.tier_all_where(world_size=[1])
@pytest.mark.parametrize("world_size, case", [
    (world_size, case) for world_size in (1, 2) for case in CASES
    if case in ddp_reference.cases_of(world_size) and not case.startswith(IN_READY_ORDER)])
def test_inline_engine_equals_pythons_bit_by_bit(trained, world_size, case):
    """It never rebuilds its buckets and has one rounding: with more ranks the order of sums, or the rounding, differs."""
    check_bitwise(trained(world_size) / "results", case, "inline", world_size)


@pytest.mark.tier_all
def test_sparse_gradients_of_one_rank_are_not_coalesced(trained):
    """PyTorch's reduction over one rank sums the rows of equal index before the optimizer does; ours has nothing to reduce."""
    ours, theirs = (load_file(trained(1) / "results" / f"transformer_sparse.{name}.0.safetensors")
                    for name in ("cohort", "python"))
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-4, atol=1e-5)


@pytest.mark.tier_all_where(world_size=[1, 3])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_adamw_of_python_differs_by_its_rounding_only(trained, world_size):
    """C++'s AdamW is bitwise Python's once Python writes the first average as C++ does (case mlp_adamw); here Python's own."""
    for rank in range(world_size):
        ours, theirs = (load_file(trained(world_size) / "results" / f"mlp_adamw_of_python.{name}.{rank}.safetensors")
                        for name in ("cohort", "python"))
        assert ours.keys() == theirs.keys()
        for name, tensor in ours.items():
            torch.testing.assert_close(tensor, theirs[name], rtol=1e-4, atol=1e-5)
            if name.startswith("gradient"):
                assert torch.equal(bits(tensor[0]), bits(theirs[name][0])), "no step has been made yet"


def test_cases_do_what_they_are_for(trained):
    """Guards against comparisons of nothing: losses move, buckets are several and rebuilt, gradients are missing in places."""
    results = trained(2) / "results"
    for case in ddp_reference.CASES:
        record = load_file(results / f"{case}.python.0.safetensors")
        losses = record["loss"]
        assert losses.isfinite().all() and losses.unique().numel() > ddp_reference.STEPS // 2, case
        assert any(not torch.equal(values[0], values[-1]) for name, values in record.items() if "parameter" in name), case
    rebuilt = buckets_of(results / "mlp_small_buckets.cohort.0.safetensors").splitlines()
    assert [line.count("[") for line in rebuilt] == [1, 1] + [2] * (ddp_reference.STEPS - 1)
    assert buckets_of(results / "transformer_small_buckets.cohort.0.safetensors").splitlines()[-1].count("[") > 4
    assert buckets_of(results / "unused.cohort.0.safetensors").splitlines()[0].count("[") > 1
    unused = load_file(results / "unused.cohort.0.safetensors")
    assert not unused["has_gradient.never.weight"].any()
    assert len(set(unused["has_gradient.right.weight"].tolist())) == 2
    starts = [load_file(results / f"cnn.cohort.{rank}.safetensors")["buffer.bn1.running_mean"] for rank in range(2)]
    assert torch.equal(starts[0][0], starts[1][0]), "construction broadcasts buffers"
    assert not torch.equal(starts[0][1], starts[1][1]), "each rank then sees its own batch"


@pytest.mark.tier_all_where(order=[["cpp", "python", "cpp"], ["python", "cpp", "python"]])
@pytest.mark.parametrize("order", [["cpp", "python"], ["python", "cpp"], ["cpp", "python", "cpp"], ["python", "cpp", "python"]])
def test_cpp_and_python_ranks_train_together(trained, tmp_path, programs, python, order):
    """One job of both: every rank ends with the bits of the job that is all Python."""
    root, cases = trained(len(order)), tmp_path / "cases"
    ddp_reference.write_cases(cases, len(order), FEW_CASES)
    commands = [cpp_rank(programs, cases, tmp_path, "cohort") if kind == "cpp" else python_rank(python, cases, tmp_path)
                for kind in order]
    run_all(commands)
    for case in FEW_CASES:
        for rank, kind in enumerate(order):
            name = "cohort" if kind == "cpp" else "python"
            ours, theirs = tmp_path / f"{case}.{name}.{rank}.safetensors", root / "results" / f"{case}.python.{rank}.safetensors"
            assert unequal(load_file(ours), load_file(theirs)) == [], f"{case}, rank {rank}"
            assert buckets_of(ours) == buckets_of(theirs), f"{case}, rank {rank}"


@pytest.mark.parametrize("launcher", ["torchrun", "cohort", "cohort starting python"])
def test_launchers_start_the_same_training(trained, tmp_path, programs, python, launcher):
    root = trained(2)
    names = ["mlp_small_buckets", "cnn"]
    ddp_reference.write_cases(tmp_path / "cases", 2, names)
    rank = cpp_rank(programs, tmp_path / "cases", tmp_path, "cohort")
    label = "cohort"
    if launcher == "torchrun":
        command = [python, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", "2", *rank]
    elif launcher == "cohort":
        command = [BUILD / "bin" / "cohort", "run", "--standalone", "--nproc-per-node", "2", *rank]
    else:
        label = "python"
        command = [BUILD / "bin" / "cohort", "run", "--standalone", "--nproc-per-node", "2",
                   *python_rank(python, tmp_path / "cases", tmp_path)]
    done = run(command, HANG_LIMIT, env=dict(os.environ, OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr
    for case in names:
        for rank in range(2):
            ours = load_file(tmp_path / f"{case}.{label}.{rank}.safetensors")
            assert unequal(ours, load_file(root / "results" / f"{case}.python.{rank}.safetensors")) == []
