"""A store among very many clients: each costs a bounded amount of memory, and those that say nothing make room for others."""
import pathlib
import re
import resource
import signal
import socket
import struct
import subprocess

import pytest

from harness import BUILD

COHORT = BUILD / "bin" / "cohort"
NUM_CLIENTS = 10_000
MOST_BYTES_PER_CLIENT = 4096

BEGIN = b"\0" + struct.pack("<I", 0x3C85F7CE)
PING = b"\x0d" + struct.pack("<I", 4711)
ECHO = struct.pack("<I", 4711)


def text(value):
    return struct.pack("<Q", len(value)) + value


def wait_for(key):
    return b"\x06" + struct.pack("<Q", 1) + text(key)


class Server:
    def __init__(self, most_files=None):
        limit = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))) if most_files else None
        self.process = subprocess.Popen([COHORT, "store", "--host=127.0.0.1", "--port=0"], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, preexec_fn=limit)
        self.port = int(re.fullmatch(r".*port (\d+)\n", self.process.stdout.readline())[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.errors = self.process.communicate(timeout=300)[1]

    def connect(self):
        client = socket.create_connection(("127.0.0.1", self.port), timeout=300)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def resident_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024


def receive(client, size):
    data = b""
    while len(data) < size:
        more = client.recv(size - len(data))
        assert more, "the store has closed the connection"
        data += more
    return data


def ask_all(clients, request, answer):
    for client in clients:
        client.sendall(request)
    for client in clients:
        assert receive(client, len(answer)) == answer


@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < NUM_CLIENTS + 100:
        pytest.skip(f"the hard limit of open files is {hard}, {NUM_CLIENTS + 100} are needed (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (NUM_CLIENTS + 100, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.alone  # it takes a third of the ports that the system has for all
def test_ten_thousand_clients(many_files):
    with Server() as server:
        clients = [server.connect()]
        ask_all(clients, BEGIN + PING, ECHO)
        before = server.resident_bytes()
        clients += [server.connect() for _ in range(NUM_CLIENTS - 1)]
        ask_all(clients[1:], BEGIN + PING, ECHO)
        connected = server.resident_bytes()
        for client in clients[1:]:
            client.sendall(wait_for(b"/go"))
        ask_all(clients[:1], PING, ECHO)
        clients[0].sendall(b"\x01" + text(b"/go") + text(b"1"))
        for client in clients[1:]:
            assert receive(client, 1) == b"\0"
        waited = server.resident_bytes()
        ask_all(clients, PING, ECHO)
        for client in clients:
            client.close()
    print(f"bytes per client: {(connected - before) / NUM_CLIENTS:.0f} connected, {(waited - before) / NUM_CLIENTS:.0f} at most")
    assert server.errors == ""
    assert connected - before < MOST_BYTES_PER_CLIENT * NUM_CLIENTS
    assert waited - before < MOST_BYTES_PER_CLIENT * NUM_CLIENTS


def test_silent_clients_make_room():
    with Server(most_files=64) as server:
        good = server.connect()
        ask_all([good], BEGIN + PING, ECHO)
        silent = [server.connect() for _ in range(200)]
        late = server.connect()
        ask_all([late], BEGIN + PING, ECHO)
        ask_all([good], PING, ECHO)
        for client in [good, late, *silent]:
            client.close()
    assert "[cohort] warning: the store drops a client that has sent nothing yet: it has no file descriptors left for others" in server.errors
    assert server.errors.count("\n") < 30


def test_too_many_clients_message():
    with Server(most_files=64) as server:
        clients = []
        refused = False
        while not refused:
            clients.append(server.connect())
            clients[-1].sendall(BEGIN + PING)
            try:
                refused = clients[-1].recv(4) != ECHO
            except ConnectionResetError:
                refused = True
        ask_all(clients[:-1], PING, ECHO)
        for client in clients:
            client.close()
    assert re.fullmatch(r"\[cohort\] warning: the store has no file descriptors left for more clients than \d\d; raise the limit of open "
                        r"files \(ulimit -n\)\n", server.errors)
