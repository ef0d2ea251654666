"""Paths and helpers shared by the end-to-end tests."""
import os
import pathlib
import socket
import subprocess

SOURCE = pathlib.Path(os.environ.get("COHORT_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("COHORT_BINARY_DIR", SOURCE / "build"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_ranks(commands, env=None, timeout=120):
    """Starts one process per command with the variables of env:// and returns [(exit code, stdout, stderr)] by rank."""
    port = str(free_port())
    processes = []
    try:
        for rank, command in enumerate(commands):
            rank_env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(len(commands)),
                            LOCAL_WORLD_SIZE=str(len(commands)), MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                            OMP_NUM_THREADS="1", **(env or {}))
            processes.append(subprocess.Popen([str(part) for part in command], env=rank_env, stdout=subprocess.PIPE,
                                              stderr=subprocess.PIPE, text=True))
        results = []
        for process in processes:
            out, err = process.communicate(timeout=timeout)
            results.append((process.returncode, out, err))
        return results
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
