"""The Trainer beside the same program in Python, and runs that are killed or stopped: they end as one that was left alone."""
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from golden import Oracle
from harness import BUILD, run_ranks, wait_for_step
from trainer_reference import write_source

COHORT = BUILD / "bin" / "cohort"
REFERENCE = pathlib.Path(__file__).with_name("trainer_reference.py")


def losses_of(out, command, case):
    """Of the first 50 batches on each rank."""
    size, command = ranks_of(case), [*map(str, command), *map(str, case), str(out.with_name("source.pt")), str(out)]
    if size == 1 and command[0] != sys.executable:  # one of C++ that is in no job
        subprocess.run(command, check=True, timeout=300, env=dict(os.environ, OMP_NUM_THREADS="1"))
    else:
        for code, _, err in run_ranks([command] * size):
            assert code == 0, err
    losses = [load_file(f"{out}.{rank}")["losses"] for rank in range(size)]
    assert len({len(each) for each in losses}) == 1 and len(losses[0]) >= 50 and losses[0][0] != losses[0][-1]
    return [each[:50] for each in losses]


CASES = [("single", "32", 1), ("single", "32", 3), ("single", "bf16-mixed", 1), ("single", "bf16", 1), ("ddp", "32", 1),
         ("ddp", "32", 4), ("ddp", "bf16-mixed", 1), ("fsdp", "32", 1), ("fsdp", "32", 4)]
# Processors round bfloat16 so differently that a golden would say little.
KEPT = [case for case in CASES if case[1] == "32"]


def name_of(case):
    return " ".join(map(str, case))


def ranks_of(case):
    return 1 if case[0] == "single" else 2


# A loss in bfloat16 is one of multiples of 1/128.
TOLERANCE = {"32": 1e-5, "bf16-mixed": 0.05, "bf16": 0.1}


def require(what, got, wanted):
    torch.testing.assert_close(got, wanted, rtol=0, atol=TOLERANCE[what.split()[-2]], msg=lambda text: f"{what}: {text}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("losses")
    write_source(folder / "source.pt")
    return folder


def pythons_losses(folder, cases):
    """{name of a case: losses} of each rank."""
    losses = {name_of(case): losses_of(folder / "theirs", [sys.executable, REFERENCE], case) for case in cases}
    return [{name: ranks[rank] for name, ranks in losses.items() if rank < len(ranks)} for rank in range(max(map(ranks_of, cases)))]


@pytest.fixture(scope="module")
def kept(golden, folder):
    return golden(__file__, lambda: pythons_losses(folder, KEPT), require, [REFERENCE], KEPT)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_losses_equal_pythons(programs, folder, kept, case):
    ours = losses_of(folder / "ours", [programs / "trainer_program", "losses"], case)
    oracle = kept.only(name_of(case)) if case in KEPT else Oracle(pythons_losses(folder, [case]), require)
    oracle.compare([{name_of(case): losses} for losses in ours])


@pytest.fixture
def start(programs, tmp_path):
    """Starts a run of two ranks; returns the launcher's process."""
    started = []

    def run(folder, out, *more):
        process = subprocess.Popen([COHORT, "run", "--standalone", "--nproc-per-node", "2", programs / "trainer_program", "run", folder, "3", out, *map(str, more)],
                                   cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"),
                                   start_new_session=True)
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def finish(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return re.search(r"ended by (\w+) at (\d+)", out).groups()


def test_a_killed_run_goes_on_exactly(start, tmp_path):
    assert finish(start("alone", "expected")) == ("max_epochs", "36")
    process = start("run", "out", 100)
    wait_for_step(tmp_path / "run", 6, process)
    os.killpg(process.pid, signal.SIGKILL)  # the workers' sessions end with the launcher
    process.wait()
    assert finish(start("run", "out")) == ("max_epochs", "36")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "expected").read_bytes()


def test_a_stopped_run_saves_and_goes_on_exactly(start, tmp_path):
    assert finish(start("alone", "expected")) == ("max_epochs", "36")
    process = start("run", "out", 100)
    wait_for_step(tmp_path / "run", 6, process)
    os.kill(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    reason, step = re.search(r"ended by (\w+) at (\d+)", out).groups()
    assert reason == "signal" and 6 < int(step) < 36, err
    assert (tmp_path / "run" / f"step-{int(step):08}" / "manifest.json").exists()
    assert finish(start("run", "out")) == ("max_epochs", "36")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "expected").read_bytes()
