"""PyTorch's own worker server (torch.distributed.elastic.control_plane) serves the flight recorder of our groups, too."""
import http.client
import json
import os
import socket
import tempfile

import torch
import torch.distributed as dist
from ranks import run_ranks
from torch._C._distributed_c10d import _WorkerServer


def ask(path, url):
    connection = http.client.HTTPConnection("rank")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)
    connection.request("POST", url)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def asked_rank(rank, size):
    for _ in range(2):
        dist.all_reduce(torch.ones(7))
    dist.barrier()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "socket")
        server = _WorkerServer(path)
        answers = ask(path, "/handler/cohort_fr_trace_json"), ask(path, "/handler/cohort_fr_trace")
        server.shutdown()
    return answers


def test_the_worker_server_knows_our_operations():
    for (status, text), (other_status, words) in run_ranks(asked_rank, 2):
        assert (status, other_status) == (200, 200)
        names = [(entry["rank"], entry["profiling_name"]) for entry in json.loads(text)["entries"]]
        assert [names.count((rank, "shm:all_reduce")) for rank in range(2)] == [2, 2]
        assert "all_reduce(SUM) of 7 float32" in words
