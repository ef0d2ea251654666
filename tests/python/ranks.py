"""Ranks of one test, forked from a process that has imported torch, so that they start in milliseconds.

    def sum_of_ranks(rank, size):
        ...
        return tensor
    results = run_ranks(sum_of_ranks, 2)      # what each rank returned, by rank

A rank leaves by os._exit; tests about the end of the interpreter start scripts by `run_scripts`.
"""
import contextlib
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist

SOURCE = pathlib.Path(os.environ.get("COHORT_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("COHORT_BINARY_DIR", SOURCE / "build"))
sys.path.insert(0, str(BUILD / "python"))

import torchcohort  # noqa: E402, F401

HANG_LIMIT = 300.0


def set_environment(rank, size, store):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size))
    return f"file://{store}"


def _run_rank(function, rank, size, options):
    torch.set_num_threads(1)
    url = set_environment(rank, size, options["store"])
    os.environ.update(options["environment"])
    if options["backend"] is None:
        return function(rank, size)
    dist.init_process_group(options["backend"], init_method=url, rank=rank, world_size=size, **options["init"])
    result = function(rank, size)
    if dist.is_initialized():
        dist.destroy_process_group()
    return result


def _child(function, rank, size, options, answer):
    code = 1
    try:
        answer.write_bytes(pickle.dumps(("ok", _run_rank(function, rank, size, options))))
        code = 0
    except BaseException:
        answer.write_bytes(pickle.dumps(("failed", traceback.format_exc())))
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _wait_for(children, limit):
    """Exit status by rank; ranks that are not done after `limit` seconds are killed."""
    statuses, deadline = {}, time.monotonic() + limit
    while len(statuses) < len(children) and time.monotonic() < deadline:
        for rank, child in enumerate(children):
            if rank not in statuses:
                pid, status = os.waitpid(child, os.WNOHANG)
                if pid:
                    statuses[rank] = os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    for rank, child in enumerate(children):
        if rank not in statuses:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            statuses[rank] = "hung"
    return statuses


def run_ranks(function, size, *, backend="cohort", may_die=(), environment=None, limit=HANG_LIMIT, **init):
    """What function(rank, size) returned in each rank; a failed one fails the test. Ranks of `may_die` answer None.

    backend=None: the function makes the group by itself, from the file in COHORT_TEST_STORE.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryDirectory() as folder:
        answers = [pathlib.Path(folder, f"answer{rank}") for rank in range(size)]
        options = {"store": f"{folder}/store", "backend": backend, "init": init,
                   "environment": {"COHORT_TEST_STORE": f"file://{folder}/store"} | (environment or {})}
        children = []
        for rank in range(size):
            child = os.fork()
            if child == 0:
                _child(function, rank, size, options, answers[rank])
            children.append(child)
        statuses = _wait_for(children, limit)
        results = []
        problems = []
        for rank, answer in enumerate(answers):
            kind, value = pickle.loads(answer.read_bytes()) if answer.exists() else ("gone", None)
            if (kind == "failed" or statuses[rank] != 0) and rank not in may_die:
                problems.append(f"rank {rank}: {statuses[rank]}, {kind}\n{value or ''}")
            results.append(value if kind == "ok" else None)
    assert not problems, "\n".join(problems)
    return results


def start_scripts(text, size, *arguments, stdin=False, **variables):
    """Starts `size` Python processes that run `text`, which finds rank, size and store in the environment."""
    store = tempfile.mkdtemp() + "/store"
    processes = []
    for rank in range(size):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size),
                           LOCAL_WORLD_SIZE=str(size), COHORT_TEST_STORE=f"file://{store}", OMP_NUM_THREADS="1",
                           PYTHONPATH=str(BUILD / "python"), **variables)
        processes.append(subprocess.Popen([sys.executable, "-c", text, *map(str, arguments)], env=environment, text=True,
                                          stdin=subprocess.PIPE if stdin else subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    return processes


def finish(processes, limit=HANG_LIMIT):
    """[(exit code, stdout, stderr)] by rank; a process that does not end is killed, and its exit code is "hung"."""
    results, deadline = [], time.monotonic() + limit
    for process in processes:
        try:
            out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            results.append((process.returncode, out, err))
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            results.append(("hung", out, err))
    return results


def run_scripts(text, size, *arguments, **variables):
    return finish(start_scripts(text, size, *arguments, **variables))
