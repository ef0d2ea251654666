"""Runs that are killed, stopped and started again, with a Checkpointer: they end as one that was left alone. The folder of a run as
cohort ckpt shows it."""
import json
import os
import random
import re
import signal
import subprocess
import time

import pytest

from harness import BUILD, wait_for_step

COHORT = BUILD / "bin" / "cohort"
STEPS = 40


@pytest.fixture
def start(programs, tmp_path):
    """Starts a run of two ranks; returns the launcher's process."""
    started = []

    def run(folder, out, *more):
        process = subprocess.Popen([COHORT, "run", "--standalone", "--nproc-per-node", "2", programs / "train_run", folder, str(STEPS), out, *map(str, more)],
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
    return process.returncode, out, err


@pytest.mark.tier_all
def test_a_run_that_is_stopped_goes_on_exactly(start, tmp_path):
    assert finish(start("alone", "expected"))[0] == 0
    process = start("run", "out", 100)
    wait_for_step(tmp_path / "run", 6, process)
    os.kill(process.pid, signal.SIGTERM)
    _, out, err = finish(process)
    [step] = set(re.findall(r"ended at (\d+)", out))  # the same on both ranks
    assert 6 < int(step) < STEPS, err
    assert (tmp_path / "run" / f"step-{int(step):08}" / "manifest.json").exists()
    code, out, err = finish(start("run", "out"))
    assert code == 0, err
    assert out.count(f"began at {step}") == 2
    assert (tmp_path / "out").read_bytes() == (tmp_path / "expected").read_bytes()


def test_a_run_that_is_killed_again_and_again_ends_exactly(start, tmp_path):
    assert finish(start("alone", "expected"))[0] == 0
    random.seed(4)
    begins = []
    for _ in range(5):
        process = start("run", "out", 10)
        begins.append(re.search(r"began at (\d+)", process.stdout.readline()).group(1))
        time.sleep(random.uniform(0.02, 0.2))
        os.killpg(process.pid, signal.SIGKILL)  # the workers' sessions end with the launcher
        process.wait()
    code, out, err = finish(start("run", "out"))
    assert code == 0, err
    assert (tmp_path / "out").read_bytes() == (tmp_path / "expected").read_bytes()
    left = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert left == ["step-00000036", "step-00000039"], begins


@pytest.fixture
def run_folder(programs, tmp_path):
    for step, metric in [(100, "0.5"), (200, "-"), (300, "0.25")]:
        subprocess.run([programs / "save_folder", "run", str(step), metric], cwd=tmp_path, check=True, timeout=300)
    (tmp_path / "run/step-00000200/weights").write_text("step 20")
    (tmp_path / "run/step-00000400").mkdir()
    (tmp_path / "run/.saving-step-00000500-1").mkdir()
    return tmp_path / "run"


def ckpt(tmp_path, *arguments):
    done = subprocess.run([COHORT, "ckpt", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_ls_of_a_run(run_folder, tmp_path):
    assert ckpt(tmp_path, "ls", "run") == (0, """\
run: 4 checkpoints

checkpoint     step  saved                    size  ranks  metric  state
step-00000400  400   -                        -     -      -       damaged: it is unfinished: it has no manifest.json
step-00000300  300   2023-11-14 22:13:20 UTC  8 B   2      0.25    whole
step-00000200  200   -                        -     -      -       damaged: "weights" has 7 bytes, but the manifest says 8
step-00000100  100   2023-11-14 22:13:20 UTC  8 B   2      0.5     whole
.saving-step-00000500-1: a save that is running, or was interrupted
""")
    listed = json.loads(ckpt(tmp_path, "ls", "run", "--json")[1])
    assert [item["whole"] for item in listed["checkpoints"]] == [False, True, False, True]
    assert listed["checkpoints"][1] == {"name": "step-00000300", "step": 300, "whole": True, "saved_at": 1700000000, "num_bytes": 8,
                                        "num_files": 1, "num_ranks": 2, "metric": 0.25, "metadata": {}}
    assert listed["temporary"] == [".saving-step-00000500-1"]


def test_verify_of_a_run(run_folder, tmp_path):
    (run_folder / "step-00000300/weights").write_text("step 301")
    code, out = ckpt(tmp_path, "verify", "run")
    assert code == 1
    assert re.sub(r"\b[0-9a-f]{8}\b", "CRC", out.replace("step-0", "step_0")) == """\
run/step_00000400: damaged: it is unfinished: it has no manifest.json
run/step_00000300: damaged: "weights" is damaged: its checksum is CRC, but the manifest says CRC
run/step_00000200: damaged: "weights" has 7 bytes, but the manifest says 8
run/step_00000100: whole: 1 file, 8 B, compared with checksums
"""
    assert ckpt(tmp_path, "verify", "run/step-00000100") == (0, "run/step-00000100: whole: 1 file, 8 B, compared with checksums\n")
