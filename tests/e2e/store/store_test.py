"""Our TCP store and PyTorch's, every operation: both clients on both servers say the same, word for word."""
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest
import torch.distributed as dist

from harness import BUILD

COHORT = BUILD / "bin" / "cohort"
PYTHON_CALLS = pathlib.Path(__file__).parent / "store_python_calls.py"


class OurServer:
    def __init__(self, environment=None):
        self.environment = dict(os.environ, **(environment or {}))

    def __enter__(self):
        self.process = subprocess.Popen([COHORT, "store", "--host=127.0.0.1", "--port=0"], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=self.environment)
        ready = self.process.stdout.readline()
        self.port = int(re.fullmatch(r"store: listening on 127\.0\.0\.1, port (\d+)\n", ready)[1])
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.rest, self.errors = self.process.communicate(timeout=300)


class PyTorchsServer:
    def __enter__(self):
        self.store = dist.TCPStore("127.0.0.1", 0, 1, True, wait_for_workers=False)
        self.port = self.store.port
        return self

    def __exit__(self, *_):
        self.store = None


@pytest.fixture(scope="module")
def reference():
    with PyTorchsServer() as server:
        return calls([sys.executable, PYTHON_CALLS], server)


def calls(client, server):
    done = subprocess.run([*client, str(server.port)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_reference_says_what_is_expected(reference):
    assert "compare_set expecting what is not -> x\n" in reference
    assert "wait -> wait timeout after 100ms, keys: z, c\n" in reference
    assert reference.count("\n") == 37
    assert reference.endswith("add to a text -> refused\n")


@pytest.mark.parametrize("server", [OurServer, PyTorchsServer])
def test_our_client(reference, programs, server):
    with server() as running:
        assert calls([programs / "store_calls"], running) == reference


def test_pytorchs_client_on_our_server(reference):
    with OurServer() as server:
        assert calls([sys.executable, PYTHON_CALLS], server) == reference
    assert server.rest == ""
    assert server.process.returncode == 0
    assert re.fullmatch(r"\[cohort\] warning: the store drops its client 127\.0\.0\.1:\d+: "
                        r'cannot add 1 to the value of key "/a", "bc"\n', server.errors)


def test_taken_port_message():
    with OurServer() as server:
        second = subprocess.run([COHORT, "store", "--host=127.0.0.1", f"--port={server.port}"], capture_output=True,
                                text=True, timeout=300)
    assert second.returncode == 1
    assert second.stdout == ""
    assert re.fullmatch(
        rf"\[cohort\] error: the store cannot start\n  caused by: cannot listen on 127\.0\.0\.1:{server.port}: "
        rf"Address already in use \(EADDRINUSE\); it is held by process {server.process.pid} \(.*\)\n"
        r"  hint: choose another port, or 0 for a free one\n", second.stderr), second.stderr


HINT = "\n  hint: cohort store --help lists the flags\n"


@pytest.mark.parametrize("flag, message", [
    ("--prot=1", 'unknown argument --prot=1 (did you mean "--port"?)' + HINT),
    ("extra", "unknown argument extra" + HINT),
    ("--port=65536", '--port: "65536" is not a port from 0 to 65535' + HINT),
    ("--port=x", '--port: "x" is not a port from 0 to 65535' + HINT),
    ("--ip-family=5", '--ip-family: "5" must be any, 4 or 6' + HINT),
])
def test_wrong_flags_message(flag, message):
    done = subprocess.run([COHORT, "store", flag], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "[cohort] error: " + message)


def test_token_file(tmp_path):
    """A store with a token from a file: our client needs it for the agents' keys, PyTorch's needs none for others."""
    path = tmp_path / "token"
    path.write_text("secret\n")
    path.chmod(0o644)
    command = [COHORT, "store", "--host=127.0.0.1", "--port=0", f"--token-file={path}"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (refused.returncode, refused.stderr) == (1, f'[cohort] error: the token file "{path}" can be read or written by other '
                                                       f"users\n  hint: chmod 600 {path}\n")
    path.chmod(0o600)
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    port = int(re.search(r"port (\d+)\n", server.stdout.readline())[1])
    store = dist.TCPStore("127.0.0.1", port, None, False)
    store.set("free", "1")
    assert store.get("free") == b"1"
    with pytest.raises(dist.DistNetworkError):
        store.add("cohort/agents", 1)
    server.send_signal(signal.SIGTERM)
    _, errors = server.communicate(timeout=300)
    assert re.fullmatch(r"\[cohort\] warning: the store drops its client 127\.0\.0\.1:\d+: its keys under cohort/ need the token\n",
                        errors)


def test_token_from_the_environment():
    done = subprocess.run([COHORT, "store", "--help"], capture_output=True, text=True, timeout=300)
    assert "COHORT_TOKEN" in done.stdout
    with OurServer({"COHORT_TOKEN": "secret"}) as server:
        store = dist.TCPStore("127.0.0.1", server.port, None, False)
        with pytest.raises(dist.DistNetworkError):
            store.add("cohort/agents", 1)
    assert "need the token" in server.errors
