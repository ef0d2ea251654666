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

from harness import BUILD, run_ranks, wait_for_step
from trainer_reference import Net

COHORT = BUILD / "bin" / "cohort"
REFERENCE = pathlib.Path(__file__).with_name("trainer_reference.py")


@pytest.fixture
def source(tmp_path):
    """Weights, and data of 26 batches of 4 on each of two ranks, the last not full; 51 on one."""
    torch.manual_seed(2)
    x = torch.randn(203, 20)
    y = (x[:, :5] + x[:, 5:10]).argmax(1)
    torch.save({"model": Net().state_dict(), "x": x, "y": y}, tmp_path / "source.pt")
    return tmp_path / "source.pt"


def losses_of(tmp_path, name, command, size):
    if size == 1:
        subprocess.run([str(part) for part in command], check=True, timeout=300, env=dict(os.environ, OMP_NUM_THREADS="1"))
    else:
        for code, _, err in run_ranks([command] * size):
            assert code == 0, err
    return [load_file(tmp_path / f"{name}.{rank}")["losses"] for rank in range(size)]


CASES = [("single", "32", 1), ("single", "32", 3), ("single", "bf16-mixed", 1), ("single", "bf16", 1), ("ddp", "32", 1),
         ("ddp", "32", 4), ("ddp", "bf16-mixed", 1), ("fsdp", "32", 1), ("fsdp", "32", 4)]


# A loss in bfloat16 is one of multiples of 1/128.
TOLERANCE = {"32": 1e-5, "bf16-mixed": 0.05, "bf16": 0.1}


@pytest.mark.parametrize("strategy, precision, accumulation", CASES)
def test_losses_equal_pythons(programs, tmp_path, source, strategy, precision, accumulation):
    size = 1 if strategy == "single" else 2
    arguments = [strategy, precision, accumulation, source]
    ours = losses_of(tmp_path, "ours", [programs / "trainer_program", "losses", *arguments, tmp_path / "ours"], size)
    theirs = losses_of(tmp_path, "theirs", [sys.executable, REFERENCE, *arguments, tmp_path / "theirs"], size)
    for own, other in zip(ours, theirs):
        assert len(own) == len(other) >= 50
        assert own[0] != own[-1]
        torch.testing.assert_close(own[:50], other[:50], rtol=0, atol=TOLERANCE[precision])


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
