"""Fault tolerance, end to end: train_gpt on two "nodes", its workers killed at random moments, ends with the undisturbed run's bits.

A failing seed is printed; COHORT_TEST_SEED repeats it.
"""
import json
import os
import random
import re
import signal
import time

import pytest

import process_tree
from harness import BUILD, SOURCE
from jobs import Job, wait_until

TRAIN_GPT = BUILD / "bin" / "examples" / "train_gpt"
STEPS = 400
NUM_KILLS = 5
KILLED_AT_START = 3
FLAGS = ["--depth", 1, "--width", 16, "--heads", 2, "--context", 32, "--batch-size", 4, "--dropout", 0.1, "--warmup", 4,
         "--eval-every", 0, "--eval-windows", 64, "--sample-bytes", 20, "--held-out", 0.2, "--steps", STEPS, "--log-every", 1,
         "--save-every", 4, "--auto-resume", "--log", "log.jsonl"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for i in range(20):
        (folder / f"{i}.h").write_text("".join(f"int value_{i}_{j} = {i} * {j};\n" for j in range(60)))
    return folder


def start_node(job, text, folder):
    """What ranks say of the death of others stays, so it goes into a folder of its own."""
    return job.start("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={job.endpoint}", "--rdzv-id=gpt",
                     f"--log-dir={folder.parent / 'logs'}", "--max-restarts=8", TRAIN_GPT, "--data", text, *FLAGS, cwd=folder)


def logged(folder):
    """Every loss by (step, name). What a killed run has logged of steps that were done again has been taken out."""
    values = {}
    path = folder / "log.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:  # the line at which a worker was killed
            continue
        for name, value in row.items():
            if "loss" in name:
                assert (row["step"], name) not in values, f"step {row['step']} is there twice"
                values[row["step"], name] = value
    return values


def num_lines(folder):
    path = folder / "log.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def snapshots(folder):
    return sorted((folder / "train_gpt").glob("step-*"))


def tensors(folder):
    from safetensors.torch import load_file
    return {name: tensor for path in snapshots(folder)[-1].glob("*.safetensors") for name, tensor in load_file(path).items()}


def run_undisturbed(job, text, folder):
    folder.mkdir()
    agents = [start_node(job, text, folder) for _ in range(2)]
    assert [agent.finish() for agent in agents] == [0, 0], agents[0].errors + agents[1].errors
    job.check_nothing_left()
    return logged(folder), tensors(folder)


def kill_one(job, agents, folder, random, number):
    """Some moment of the round that runs: soon after its start, or after some more steps. True where the next one must resume."""
    workers = wait_until(lambda: len(found := [agent.workers() for agent in agents]) == 2 and all(found) and found,
                         lambda: f"two workers; {agents[0].errors}{agents[1].errors}")
    victim = random.randrange(2)
    if number == KILLED_AT_START:
        delay = random.uniform(0, 0.5)
        moment = f"{delay * 1000:.0f} ms after the workers' start"
        time.sleep(delay)
    else:
        steps, delay = random.randint(8, 16), random.uniform(0, 0.02)  # saves are up to four steps behind
        moment = f"{delay * 1000:.1f} ms after {steps} more steps"
        before = num_lines(folder)
        wait_until(lambda: num_lines(folder) >= before + steps, lambda: agents[0].errors + agents[1].errors)
        time.sleep(delay)
    print(f"kill {number}: the worker of agent {victim}, {moment}")
    os.kill(workers[victim][0], signal.SIGKILL)
    for agent in agents:
        agent.wait_for_errors(f"restarting the workers, restart {number} of 8: ")
    return number != KILLED_AT_START - 1 and bool(snapshots(folder))


def test_killed_workers_resume_and_end_with_the_same_bits(tmp_path, text, job):
    seed = int(os.environ.get("COHORT_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"COHORT_TEST_SEED={seed}")
    losses, parameters = run_undisturbed(Job(tmp_path), text, tmp_path / "undisturbed")
    assert [(step, "train/loss") in losses for step in range(1, STEPS + 1)] == [True] * STEPS and (STEPS, "test/loss") in losses

    folder = tmp_path / "killed"
    folder.mkdir()
    agents = [start_node(job, text, folder) for _ in range(2)]
    moments = random.Random(seed)
    num_resumed = sum(kill_one(job, agents, folder, moments, number) for number in range(1, NUM_KILLS + 1))
    assert [agent.finish() for agent in agents] == [0, 0], agents[0].errors + agents[1].errors

    resumed = [int(step) for agent in agents for step in re.findall(r'resumes after step (\d+) of "train_gpt"', agent.output)]
    assert num_resumed >= 2 and len(resumed) >= num_resumed, "every restart after the first snapshot resumes"
    assert all(step % 4 == 0 for step in resumed)
    assert logged(folder) == losses
    killed_parameters = tensors(folder)
    assert killed_parameters.keys() == parameters.keys()
    assert all(parameters[name].equal(killed_parameters[name]) for name in parameters)
    # A round that begins anew, as the one before it was killed before its first snapshot, keeps the log it finds.
    old_logs = {f"log.{number}.jsonl" for number in range(1, NUM_KILLS)}
    assert {path.name for path in folder.iterdir()} - old_logs == {"log.jsonl", "train_gpt"}
    assert [path.name for path in (folder / "train_gpt").iterdir()] == [f"step-{STEPS:08}"], "no half-written files"
    job.check_nothing_left()


def test_ranks_that_do_not_share_the_folder_are_told(tmp_path, text, job):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    agents = [job.start("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={job.endpoint}", "--rdzv-id=gpt", TRAIN_GPT,
                        "--data", text, *FLAGS, cwd=folder) for folder in folders]
    assert [agent.finish() for agent in agents] == [1, 1]
    errors = agents[0].errors + agents[1].errors
    assert 'train_gpt: error: [cohort] Checkpointer: cannot save step 4 in "train_gpt"\n' in errors, errors
    assert ("  hint: all ranks need the same folder: give one on a file system that all hosts share, by its absolute path\n"
            in errors), errors


def commands(page):
    """The page's indented blocks, as one shell script."""
    text = (SOURCE / "docs" / "guide" / page).read_text()
    return "".join(line[4:] for line in re.findall(r"(?m)^(?:    .*)?\n", text) if line.strip())


@pytest.mark.tier_all
def test_the_guide_page_does_what_it_says(tmp_path):
    """Its commands, literally, one after the other; but for more steps, of which a busy machine does many before a rank is killed."""
    for name, target in (("build", BUILD), ("docs", SOURCE / "docs")):
        (tmp_path / name).symlink_to(target)
    script = "set -eu\n" + commands("fault_tolerance.md").split("# On two hosts")[0]
    assert script.count("--steps 200 ") == 2 and script.count("/step-00000200") == 2
    script = script.replace("--steps 200 ", "--steps 400 ").replace("/step-00000200", "/step-00000400")
    done = process_tree.run(["bash", "-c", script], 600, cwd=tmp_path, env=dict(os.environ, OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[cohort] warning: restarting the workers, restart 1 of 3: rank " in done.stderr
    assert re.search(r'^resumes after step \d+ of "killed" \(epoch \d+, batch \d+\)$', done.stdout, re.M)
    assert done.stdout.rstrip().endswith("the same bits"), done.stdout[-500:]
