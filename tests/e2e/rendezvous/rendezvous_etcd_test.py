"""A rendezvous over etcd, which may be away for a while, and over a file."""
import base64
import contextlib
import re
import socket
import ssl
import subprocess
import threading
import time

import pytest

from harness import free_port, wait_for_etcd
from rendezvous_nodes import HANG, QUICK, Job


class Etcd:
    """With TLS `certificates` is a folder: the server has server.pem, and takes clients that ca.pem has signed."""

    def __init__(self, folder, certificates=None):
        self.folder, self.flags, self.context = folder, [], None
        self.port, self.peer_port = free_port(), free_port()
        if certificates:
            server, key, ca = (certificates / name for name in ("server.pem", "server.key", "ca.pem"))
            self.flags = [f"--cert-file={server}", f"--key-file={key}", f"--trusted-ca-file={ca}", "--client-cert-auth"]
            self.context = ssl.create_default_context(cafile=ca)
            self.context.load_cert_chain(server, key)
        self.start()

    def start(self):
        scheme = "https" if self.context else "http"
        url, peer_url = f"{scheme}://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peer_port}"
        self.process = subprocess.Popen(
            ["etcd", "--data-dir", self.folder, "--listen-client-urls", url, "--advertise-client-urls", url,
             "--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url, "--initial-cluster", f"default={peer_url}",
             "--heartbeat-interval", "20", "--election-timeout", "100", *self.flags],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for_etcd(url, self.context)

    def kill(self):
        self.process.kill()
        self.process.wait(HANG)


@pytest.fixture
def etcd(tmp_path):
    server = Etcd(tmp_path / "etcd")
    yield server
    server.kill()


@pytest.fixture
def certificates(tmp_path):
    """ca.pem, and server.pem, client.pem with their keys, signed by it; stranger.pem by itself."""
    folder = tmp_path / "certificates"
    folder.mkdir()

    def make(name, *flags):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                        f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem", *flags], cwd=folder, check=True, timeout=HANG,
                       capture_output=True)

    make("ca")
    make("stranger")
    for name in ("server", "client"):
        make(name, "-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE")
    return folder


def both(job, backend, conf=QUICK):
    nodes = [job.node("--nnodes=2:2", "--max-restarts=2", backend=backend, conf=conf) for _ in range(2)]
    lines = [node.round() for node in nodes]
    assert sorted(lines) == [f"round 0 restart 0 rank {rank} of 2" for rank in range(2)]
    return [node for _, node in sorted(zip(lines, nodes), key=lambda pair: pair[0])]


def restart(nodes, number):
    nodes[1].order("fail rank 1 broke")
    for node in nodes:
        assert node.next() == "over worker-failed by 1: rank 1 broke"
        node.order("next")
    assert [node.round() for node in nodes] == [f"round {number} restart {number} rank {rank} of 2" for rank in range(2)]


def finish(nodes):
    for node in nodes:
        node.order("success")
    for node in nodes:
        assert node.next() == "over finished by -1 ends: every worker has ended with 0"
        assert node.ended() == 0


def test_a_job_outlives_a_restart_of_etcd(etcd):
    with Job(f"127.0.0.1:{etcd.port}") as job:
        nodes = both(job, "etcd")
        etcd.kill()
        time.sleep(3)  # longer than a node may be silent
        assert all(node.is_quiet(0) for node in nodes)
        assert all(any(f"etcd at 127.0.0.1:{etcd.port} does not answer; the workers go on meanwhile" in line for line in node.errors)
                   for node in nodes)
        etcd.start()
        restart(nodes, 1)
        finish(nodes)


def test_what_happens_while_etcd_is_away_counts_when_it_is_back(etcd):
    with Job(f"127.0.0.1:{etcd.port}") as job:
        nodes = both(job, "etcd-v2")
        etcd.kill()
        nodes[0].order("fail rank 0 broke")
        assert nodes[0].is_quiet(0.5)
        etcd.start()
        for node in nodes:
            assert node.next() == "over worker-failed by 0: rank 0 broke"
            node.order("next")
        assert [node.round() for node in nodes] == [f"round 1 restart 1 rank {rank} of 2" for rank in range(2)]
        finish(nodes)


def test_the_death_of_the_first_node_is_survived(etcd):
    with Job(f"127.0.0.1:{etcd.port}") as job:
        nodes = [job.node("--nnodes=1:2", backend="etcd")]
        assert nodes[0].round() == "round 0 restart 0 rank 0 of 1"
        nodes.append(job.node("--nnodes=1:2", backend="etcd"))
        assert nodes[0].next().startswith("over nodes-waiting")
        nodes[0].order("next")
        by_rank = sorted(nodes, key=lambda node: node.round())
        nodes[0].kill()
        assert re.fullmatch(rf"over node-lost by {by_rank.index(nodes[0])}: \S+ \(pid \d+\) gave no sign of life for 2\.0 s",
                            nodes[1].next())
        nodes[1].order("next")
        assert nodes[1].round() == "round 2 restart 0 rank 0 of 1"
        finish(nodes[1:])


class Gate:
    """A way to etcd that is shut for some seconds by the first request that names `key`."""

    def __init__(self, port, key, seconds):
        self.target, self.seconds, self.shut_until = port, seconds, None
        self.word = base64.b64encode(key.encode()).rstrip(b"=")[:-1]
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            if self.shut_until and time.monotonic() < self.shut_until:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self.target))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self.pass_on, args=(source, sink), daemon=True).start()

    def pass_on(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.word in data and not self.shut_until:
                    self.shut_until = time.monotonic() + self.seconds
                if self.shut_until and time.monotonic() < self.shut_until:
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.mark.parametrize("name", ["settings", "notice/0", "news/0"])
def test_etcd_that_is_away_while_a_node_joins(etcd, name):
    gate = Gate(etcd.port, f"cohort/job/values/cohort/job/{name}", seconds=3)
    with Job(f"127.0.0.1:{gate.port}") as job:
        node = job.node("--nnodes=1", backend="etcd")
        assert node.round() == "round 0 restart 0 rank 0 of 1"
        assert gate.shut_until
        assert any("does not answer; trying again, for 5 min 0 s at most" in line for line in node.errors), node.errors
        finish([node])
    gate.close()


@pytest.mark.parametrize("backend, names", [("etcd", ("cacert", "cert", "key")), ("etcd-v2", ("ca_cert", "ssl_cert", "ssl_cert_key"))])
def test_a_job_over_tls_outlives_a_restart_of_etcd(tmp_path, certificates, backend, names):
    files = zip(names, ("ca.pem", "client.pem", "client.key"))
    tls = ",".join(["protocol=https"] + [f"{name}={certificates / file}" for name, file in files])
    etcd = Etcd(tmp_path / "etcd", certificates)
    try:
        with Job(f"127.0.0.1:{etcd.port}") as job:
            nodes = both(job, backend, f"{QUICK},{tls}")
            etcd.kill()
            etcd.start()
            restart(nodes, 1)
            finish(nodes)
    finally:
        etcd.kill()


def test_an_authority_that_is_not_known_ends_the_wait_message(tmp_path, certificates):
    etcd = Etcd(tmp_path / "etcd", certificates)
    try:
        with Job(f"https://127.0.0.1:{etcd.port}") as job:
            node = job.node("--nnodes=2", backend="etcd", conf=f"join_timeout=600,cacert={certificates / 'stranger.pem'}")
            assert node.next() == (
                "error: cannot open the store in etcd\n"
                f"  caused by: cannot speak TLS with etcd on 127.0.0.1:{etcd.port}\n"
                f"  caused by: its certificate is signed by \"ca\", which the CA file \"{certificates / 'stranger.pem'}\" does not hold\n"
                "  hint: give the certificate of that authority: --rdzv-conf cacert=FILE")
    finally:
        etcd.kill()


def test_no_etcd_message():
    port = free_port()
    with Job(f"127.0.0.1:{port}") as job:
        node = job.node("--nnodes=2", backend="etcd", conf="join_timeout=1")
        text = node.next()
        assert text.startswith(f"error: no rendezvous store answered at 127.0.0.1:{port} within "), text
        assert "Connection refused (ECONNREFUSED)" in text


def test_over_a_file(tmp_path):
    path = tmp_path / "meet"
    with Job(str(path)) as job:
        nodes = both(job, "file")
        restart(nodes, 1)
        finish(nodes)
        assert not path.exists()


def test_no_file_message(tmp_path):
    path = tmp_path / "missing" / "meet"
    with Job(str(path)) as job:
        node = job.node("--nnodes=2", backend="file")
        text = node.next()
        assert str(path) in text and "No such file or directory (ENOENT)" in text, text
