"""Paths and helpers shared by the end-to-end tests."""
import itertools
import os
import pathlib
import random
import re
import socket
import subprocess
import time
import urllib.request

import python_server
from process_tree import kill_tree

SOURCE = pathlib.Path(os.environ.get("COHORT_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("COHORT_BINARY_DIR", SOURCE / "build"))


def ports_of_this_worker():
    """Ports for servers, in random order. No other worker of pytest-xdist has them, and none that the system hands out by itself
    or that belongs to a scheduler's job (12000 to 31999, port_of_job; PyTorch's defaults and ours lie there, too), so they stay
    free until the server takes them."""
    first_of_system = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    ports = [port for port in range(10000, first_of_system) if not 12000 <= port < 32000 and port % workers == worker]
    random.shuffle(ports)
    return itertools.cycle(ports or [0])


PORTS = ports_of_this_worker()


def free_port():
    for port in itertools.islice(PORTS, 1000):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise AssertionError("no port is free")


def wait_for_etcd(url, context=None):
    """Until it answers; `context`: of TLS."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=1, context=context) as answer:
                if b"true" in answer.read():
                    return
        except OSError:
            time.sleep(0.02)
    raise AssertionError("etcd does not start")


def wait_for_step(folder, step, process):
    """Until the run `process` has saved this step in a Checkpointer's folder or, where only the last ones stay, a later one."""
    deadline = time.monotonic() + 300
    while not any(int(path.name[5:]) >= step for path in folder.glob("step-" + 8 * "[0-9]")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)


def start_rank(command, env):
    if python_server.can_serve(command, env):
        return python_server.start(command, env)
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_ranks(commands, env=None, timeout=300):
    """Starts one process per command with the variables of env:// and returns [(exit code, stdout, stderr)] by rank."""
    port = str(free_port())
    processes = []
    try:
        for rank, command in enumerate(commands):
            rank_env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(len(commands)),
                            LOCAL_WORLD_SIZE=str(len(commands)), MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                            OMP_NUM_THREADS="1", **(env or {}))
            processes.append(start_rank([str(part) for part in command], rank_env))
        results = []
        for process in processes:
            out, err = process.communicate(timeout=timeout)
            results.append((process.returncode, out, err))
        return results
    finally:
        for process in processes:
            if process.poll() is None:
                kill_tree(process.pid)
                process.wait()
