"""cohort-bench: real ranks, checked results, and rows as scripts expect them. No figure is judged."""
import json
import pathlib

import pytest
from harness import BUILD
from process_tree import run

pytestmark = pytest.mark.tier_all  # it needs the benchmarks

BENCH = BUILD / "bin" / "cohort-bench"
HANG_LIMIT = 300


def bench(*arguments, hang_limit=HANG_LIMIT):
    return run([BENCH, *arguments], hang_limit)


def rows_and_table(folder, *arguments, hang_limit=HANG_LIMIT):
    path = folder / "rows.json"
    result = bench(*arguments, "--json", path, hang_limit=hang_limit)
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(path.read_text()), result.stdout


def rows_of(folder, question, *arguments, hang_limit=HANG_LIMIT):
    """With tools/dev/smoke_bench.sh's arguments: what it has made of this very program, as in CI, or else of a run of our own."""
    made = BUILD / "bench" / "smoke" / f"{question}.json"
    if made.exists() and made.stat().st_mtime > BENCH.stat().st_mtime:
        return json.loads(made.read_text())
    return rows_and_table(folder, question, *arguments, hang_limit=hang_limit)[0]


@pytest.fixture(scope="module")
def collectives(tmp_path_factory):
    return rows_and_table(tmp_path_factory.mktemp("bench"), "collectives", "--quick", "--ranks", "2", "--op", "all_reduce,barrier",
                          "--size", "4B,64KiB", "--dtype", "float32")


def test_every_case_has_every_rival(collectives):
    rows, _ = collectives
    large = {"all_reduce/float32/64KiB/ranks=2"}
    small = {"all_reduce/float32/4B/ranks=2", "barrier/ranks=2"}
    shared = {name + memory for name in large for memory in ("/memory=shm", "/memory=allocator")}
    assert {row["case"] for row in rows} == large | small | shared
    for case in large | small | shared:
        rivals = {row["rival_name"] for row in rows if row["case"] == case}
        assert {"gloo", "openmpi"} <= rivals
        assert ("roof" in rivals) == (case not in small)


def test_rows_hold_figures_or_say_why_not(collectives):
    rows, _ = collectives
    for row in rows:
        assert row["question"] == "collectives" and row["unit"] == "us" and row["ours"] > 0, row
        assert 0 < row["ours_min"] <= row["ours_p50"] <= row["ours_p99"], row
        if row["rival"] is None:
            assert row["rival_name"] == "openmpi" and row["ratio"] is None and row["note"], row
            continue
        assert row["pairs"] >= 1 and row["ratio_low"] <= row["ratio"] <= row["ratio_high"], row
        assert row["bounds"] == ("range" if row["pairs"] < 6 else "95 %"), row


def test_openmpi_says_how_it_copies(collectives):
    rows, table = collectives
    notes = {row["note"] for row in rows if row["rival_name"] == "openmpi"}
    assert len(notes) == 1
    assert f", openmpi is {notes.pop()}\n" in table


def test_gloo_is_libtorchs_own(collectives):
    rows, table = collectives
    assert {row["note"] for row in rows if row["rival_name"] == "gloo"} == {"c10d::ProcessGroupGloo"}
    assert "2 ranks: gloo is c10d::ProcessGroupGloo, openmpi is " in table


def test_leaves_nothing_behind(collectives):
    def command(process):
        try:
            return (process / "cmdline").read_bytes()
        except OSError:  # it has just ended
            return b""
    names = [command(process) for process in pathlib.Path("/proc").glob("[0-9]*")]
    assert not [name for name in names if b"--collectives-rank" in name or b"cohort-bench-mpi-rank" in name]


def test_a_mistyped_operation_is_named_message():
    result = bench("collectives", "--op", "all_reduced")
    assert result.returncode == 1
    assert result.stderr == (
        'cohort-bench: collectives: "all_reduced" is not a valid operation (did you mean "all_reduce"?); known: all_reduce, '
        "broadcast, reduce, all_gather_single, reduce_scatter_single, all_to_all_single, send_recv, barrier\n\n")


def test_python_steps_on_three_backends(tmp_path):
    rows = rows_of(tmp_path, "python", "--quick", "--case", "ddp/linear")
    step, added = "ddp/linear/ranks=2", "ddp/linear/ranks=2/added"
    assert [(row["case"], row["rival_name"]) for row in rows] == [(step, "fake"), (step, "gloo"), (added, "gloo")]
    has_package = list((BUILD / "python" / "torchcohort").glob("_C.*.so"))
    for row in rows:
        assert row["question"] == "python" and row["unit"] == "ms" and row["rival"] is not None, row
        if has_package:
            assert row["ours"] is not None and row["pairs"] >= 1, row
        else:
            folder = BUILD / "python" / "torchcohort"
            assert row["ours"] is None and row["note"] == f"torchcohort is not built: {folder} has no _C.*.so", row


def test_the_optimizer_beside_its_three_rivals(tmp_path):
    rows, _ = rows_and_table(tmp_path, "optimizer", "--rounds", 1, "--case", "sgd-nesterov")
    assert [row["rival_name"] for row in rows] == ["libtorch", "python-foreach", "python-fused"]
    assert all(row["case"] == "sgd-nesterov/resnet50-parameters" and row["ours"] > 0 and row["rival"] > 0 for row in rows), rows


@pytest.mark.parametrize("question, case, meant, cases", [
    ("python", "ddp/linea", "ddp/linear",
     "ddp/linear, ddp/mlp-4x1024, ddp/mlp-4x4096, fsdp/block-1024/tokens=64, fsdp/block-1024/tokens=512, "
     "tp/block-1024/tokens=64, tp/block-1024/tokens=512"),
    ("tensor-parallel", "block-1024/tokens=63", "block-1024/tokens=64",
     "block-1024/tokens=64, block-1024/tokens=512, block-2048/tokens=64"),
    ("checkpoint", "sharded-lod", "sharded-load",
     "save, save-fsync, load, mapped, async-fsync, sharded-save, sharded-save-fsync, sharded-load")])
def test_a_mistyped_case_is_named_message(question, case, meant, cases):
    result = bench(question, "--case", case)
    assert result.returncode == 1
    assert result.stderr == (
        f'cohort-bench: {question}: there is no case "{case}" (did you mean "{meant}"?); cases: {cases}\n\n')


@pytest.mark.parametrize("case, ranks, rivals", [("mapped", 1, ["torch.load(mmap)"]), ("async-fsync", 1, ["DCP", "whole save"]),
                                                 ("sharded-load", 2, ["DCP"])])
def test_checkpoints_beside_python(tmp_path, case, ranks, rivals):
    rows, _ = rows_and_table(tmp_path, "checkpoint", "--quick", "--rounds", "2", "--case", case)
    assert [(row["case"], row["rival_name"]) for row in rows] == [(f"{case}/32MiB/ranks={ranks}", rival) for rival in rivals]
    for row in rows:
        assert row["question"] == "checkpoint" and row["unit"] == "ms" and row["ours"] > 0 and row["rival"] > 0, row
        assert row["pairs"] == 2, row  # the first round, in which memory is given out, does not count


def test_recovery_beside_torchrun(tmp_path):
    rows = rows_of(tmp_path, "recovery", "--quick", "--rounds", "1", hang_limit=3 * HANG_LIMIT)
    figures = {(row["case"], row["rival_name"]): row for row in rows}
    assert figures.keys() == {
        ("crash-to-processes/workers=2", "torchrun"),
        ("crash-to-collective/workers=2", "torchrun-same-rank"), ("crash-to-collective/workers=2", "torchrun-python-gloo"),
        *((case, rival) for rival in ("our-restart-from-disk", "torchrun-torch.save")
          for case in ("kill-to-step/gpt-25M/ranks=2", "keep-a-state/gpt-25M/ranks=2", "keep-a-state/of-a-step")),
        ("keep-a-state/gpt-25M/ranks=2", "one-memory-copy"), ("keep-a-state/of-a-step", "one-memory-copy")}
    for (case, _), row in figures.items():
        assert row["question"] == "recovery" and row["ours"] > 0 and row["rival"] > 0, row
        assert row["unit"] == ("%" if case == "keep-a-state/of-a-step" else "ms"), row
