"""cohort::comm::WorkerServer asked over its socket by Python's HTTP client, beside PyTorch's own server (_WorkerServer)."""
import http.client
import json
import os
import re
import socket
import stat
import subprocess
import sys

import pytest

from harness import BUILD, free_port

RANK = BUILD / "bin" / "tests" / "worker_server_rank"
HANG_LIMIT = 300
PYTORCHS = """
import sys
from torch._C._distributed_c10d import _WorkerServer
server = _WorkerServer(sys.argv[1])
print("listening", flush=True)
sys.stdin.read()
server.shutdown()
"""


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("rank", timeout=HANG_LIMIT)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(HANG_LIMIT)
        self.sock.connect(self.path)


def ask(path, method, url, body=None):
    """(status, content type, body)"""
    connection = Connection(path)
    try:
        connection.request(method, url, body)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def start(command, **variables):
    env = {name: value for name, value in os.environ.items() if name != "TORCH_WORKER_SERVER_SOCKET"}
    return subprocess.Popen([str(word) for word in command], env=dict(env, OMP_NUM_THREADS="1", **variables), text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def start_rank(rank=0, size=1, port=None, **variables):
    return start([RANK], RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size),
                 MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port or free_port()), **variables)


@pytest.fixture
def processes():
    started = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def end(process):
    return process.communicate(timeout=HANG_LIMIT)[0], process.returncode


def test_two_ranks_tell_what_they_did(processes, tmp_path):
    port = free_port()
    for rank in range(2):
        processes.append(start_rank(rank, 2, port, TORCH_WORKER_SERVER_SOCKET=f"{tmp_path}/${{rank}}_${{local_rank}}"))
    for rank, process in enumerate(processes):
        assert process.stdout.readline() == f'listening at "{tmp_path}/{rank}_{rank}"\n'
    path = tmp_path / "1_1"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    status, content_type, body = ask(path, "POST", "/handler/cohort_fr_trace_json")
    assert (status, content_type) == (200, "application/json")
    entries = json.loads(body)["entries"]
    assert {entry["rank"] for entry in entries} == {0, 1}
    assert [entry["profiling_name"] for entry in entries if entry["rank"] == 0].count("shm:all_reduce") == 3
    status, content_type, body = ask(path, "POST", "/handler/cohort_fr_trace")
    assert (status, content_type) == (200, "text/plain")
    assert "all_reduce(SUM) of 5 float32" in body
    for process in processes:
        assert end(process) == ("done\n", 0)
    assert list(tmp_path.iterdir()) == []


def test_answers_are_pytorchs(processes, tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    processes.append(start_rank(TORCH_WORKER_SERVER_SOCKET=str(ours)))
    processes.append(start([sys.executable, "-c", PYTORCHS, theirs]))
    for process in processes:
        assert process.stdout.readline().startswith("listening")
    for request in (("POST", "/handler/ping"), ("POST", "/handler/ping?a=b", "body"), ("POST", "/handler/nobody")):
        assert ask(ours, *request) == ask(theirs, *request), request
    for request in (("GET", "/handler/ping"), ("HEAD", "/handler/nobody"), ("GET", "/nothing"), ("POST", "/")):
        assert ask(ours, *request)[0] == ask(theirs, *request)[0] == 404, request
    assert ask(ours, "GET", "/")[:2] == ask(theirs, "GET", "/")[:2] == (200, "text/html")
    names, their_names = (json.loads(ask(path, "GET", "/handler/")[2]) for path in (ours, theirs))
    assert set(names) - set(their_names) == {"cohort_fr_trace", "cohort_fr_trace_json", "echo"}
    # Python adds the one that shows Python's stacks.
    assert set(their_names) - set(names) <= {"dump_traceback"}
    counters = json.loads(ask(ours, "POST", "/handler/wait_counter_values")[2])
    assert counters["pytorch.wait_counter.TCPStore__add"]["total_calls"] > 0
    assert json.loads(ask(ours, "POST", "/handler/fr_trace_json")[2])["version"] == "2.10"
    assert ask(ours, "POST", "/handler/echo?word=a%20b", "from us") == (503, "text/x-echo", "a b|from us")
    assert ask(ours, "POST", "/handler/echo?throw=yes") == (500, "text/plain", "Handler echo failed: as you wish")
    assert end(processes[0]) == ("done\n", 0)
    assert not ours.exists()


def test_what_is_in_the_way(processes, tmp_path):
    path = tmp_path / "socket"
    first = start_rank(TORCH_WORKER_SERVER_SOCKET=str(path))
    processes.append(first)
    assert first.stdout.readline() == f'listening at "{path}"\n'
    why = f'[cohort] cannot serve the control plane at "{path}": '
    hint = ('another process listens there\n  hint: give each rank of a host a socket of its own: "${rank}" in '
            "TORCH_WORKER_SERVER_SOCKET stands for the rank\n")
    assert first_words(end(start_rank(TORCH_WORKER_SERVER_SOCKET=str(path)))) == (why + hint, 3)
    first.kill()
    first.wait()
    assert path.is_socket()  # left behind, and replaced
    second = start_rank(TORCH_WORKER_SERVER_SOCKET=str(path))
    processes.append(second)
    assert second.stdout.readline() == f'listening at "{path}"\n'
    assert ask(path, "POST", "/handler/ping") == (200, "text/plain", "pong")
    assert end(second) == ("done\n", 0)
    path.write_text("precious")
    assert first_words(end(start_rank(TORCH_WORKER_SERVER_SOCKET=str(path)))) == (why + "something else is there\n", 3)
    assert path.read_text() == "precious"
    long = "/" + "x" * 107
    assert first_words(end(start_rank(TORCH_WORKER_SERVER_SOCKET=long))) == (
        f'[cohort] cannot serve the control plane at "{long}": the path has 108 bytes, and a socket\'s has 1 to 107\n', 3)


def first_words(outcome):
    """Without LibTorch's "Exception raised from" and the stack."""
    return re.split(r"Exception raised from", outcome[0])[0], outcome[1]


def test_nothing_without_the_variable(processes):
    rank = start_rank()
    processes.append(rank)
    assert rank.stdout.readline() == 'listening at ""\n'
    assert end(rank) == ("done\n", 0)
