"""Agents of torchrun and ours at one store: whoever comes second stops with an error, instead of waiting for the other."""
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import torch.distributed as dist

from rendezvous_nodes import HANG, Job, Node


class Torchrun:
    """In a session of its own, so that all of it can be ended."""

    def __init__(self, *flags):
        words = [sys.executable, "-m", "torch.distributed.run", *flags, "--no-python", "true"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                        env={**os.environ, "OMP_NUM_THREADS": "1"})

    def ended(self):
        return self.process.communicate(timeout=HANG)[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=HANG)


def both(backend, job, rank):
    """Flags that torchrun and our program take alike."""
    return ["--nnodes=2", f"--rdzv-backend={backend}", f"--rdzv-endpoint={job.endpoint}", "--rdzv-id=job",
            *([f"--node-rank={rank}"] if backend == "static" else [])]


def ours(backend, job, rank):
    flags = [flag for flag in both(backend, job, rank) if not flag.startswith("--rdzv-backend")]
    job.nodes.append(Node(*flags, backend=backend))
    return job.nodes[-1]


def await_listener(job):
    port = f":{int(job.endpoint.split(':')[1]):04X} "
    deadline = time.monotonic() + HANG
    while time.monotonic() < deadline:
        tables = "".join(open(f"/proc/net/{name}").read() for name in ("tcp", "tcp6"))
        if any(port in line and line.split()[3] == "0A" for line in tables.splitlines()):
            return
        time.sleep(0.01)
    raise AssertionError(f"nobody listens at {job.endpoint}")


def await_key(job, pattern):
    host, port = job.endpoint.split(":")
    store = dist.TCPStore(host, int(port), None, False, wait_for_workers=False)
    deadline = time.monotonic() + HANG
    # "init/" is counted, but not listed: it lacks the slash that clients put before their keys.
    while not any(re.fullmatch(pattern, key) for key in store.list_keys()) and store.num_keys() == len(store.list_keys()):
        assert time.monotonic() < deadline, store.list_keys()
        time.sleep(0.02)


def test_torchrun_stops_at_our_dynamic_rendezvous():
    with Job() as job:
        node = ours("c10d", job, 0)
        node.wait_for_errors("1 of 2 nodes has arrived")
        with Torchrun(*both("c10d", job, 1)) as torchrun:
            text = torchrun.ended()
            assert torchrun.process.returncode == 1
        assert "RendezvousStateError: The state object is corrupt. See inner exception for details." in text
        assert node.is_quiet(0)


def test_torchrun_stops_at_our_static_rendezvous():
    with Job() as job:
        node = ours("static", job, 0)
        node.wait_for_errors("1 of 2 nodes has arrived")
        with Torchrun(*both("static", job, 1)) as torchrun:
            text = torchrun.ended()
            assert torchrun.process.returncode == 1
        assert "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)" in text
        assert node.is_quiet(0)


@pytest.mark.parametrize("backend, key", [("c10d", r"torch\.rendezvous\.job"),
                                          ("static", r"(job/torchelastic/role_info/0|init/)")])
def test_we_stop_at_torchruns_rendezvous(backend, key):
    with Job() as job, Torchrun(*both(backend, job, 0)):
        await_listener(job)
        await_key(job, key)  # it listens before it writes
        node = ours(backend, job, 1)
        assert re.fullmatch(rf'error: the store at {job.endpoint} belongs to a rendezvous of torchrun \(it has the key "{key}"\)\n'
                            "  hint: start every node with the same launcher, or give the two jobs different ports", node.next())
        assert node.ended() == 1
