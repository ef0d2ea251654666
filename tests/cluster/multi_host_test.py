"""The start of a job over two hosts: what works, and what each rank says when it cannot."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import namespaces  # noqa: E402

SOURCE = pathlib.Path(os.environ.get("COHORT_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("COHORT_BINARY_DIR", SOURCE / "build"))
PORT = 29511
# It waits for longer than a busy machine takes to load PyTorch in Python, if further arguments say nothing else.
WORKER = [BUILD / "bin" / "cohort_comm_test", "--worker=start", "*:@timeout=120000"]
PYTHON_RANK = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
assert one.item() == dist.get_world_size()
print("started", flush=True)
dist.destroy_process_group()
os._exit(0)  # the interpreter's own end may abort: see ../e2e/parallel/ddp_reference.py
"""


@pytest.fixture
def cluster(tmp_path):
    with namespaces.cluster(tmp_path) as cluster:
        yield cluster


def start(cluster, *orders, ranks=None, python=()):
    """One rank per host, or the (host, rank) pairs in `ranks`; returns each process's output, pids and times replaced."""
    ranks = ranks or [(host, rank) for rank, host in enumerate(cluster.hosts)]
    world_size = len({rank for _, rank in ranks})
    processes = []
    try:
        for host, rank in ranks:
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world_size), MASTER_ADDR="node-a", MASTER_PORT=str(PORT),
                       OMP_NUM_THREADS="1")
            program = [sys.executable, "-c", PYTHON_RANK] if rank in python else [*WORKER, *orders]
            processes.append(subprocess.Popen(host.command(program), env=env, text=True, stdout=subprocess.PIPE,
                                              stderr=subprocess.PIPE))
        results = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    return [plain(out) or err for out, err in results]


def plain(text):
    text = re.sub(r"^begins\n", "", text)
    text = re.sub(r"pid \d+", "pid P", text)
    text = re.sub(r"fe80::[0-9a-f:]+", "fe80::X", text)
    text = re.sub(r"\d+ attempts? in [\d.]+ [mu]?s", "T", text)
    return re.sub(r"attempt of [\d.]+ m?s", "attempt of T", text)


STARTED = ["started\n", "started\n"]
ETH0_B = "10.77.0.2, fd77::2, fe80::X%eth0"


@pytest.mark.parametrize("python", [(), (0,), (1,)])
def test_ranks_on_two_hosts_start(cluster, python):
    assert start(cluster, python=python) == STARTED


def test_host_name_that_resolves_to_loopback(cluster):
    cluster.hosts[1].set_hosts("127.0.1.1 node-b", own=False)
    text = ("ValueError: [cohort] ranks on different hosts cannot connect: rank 1 (pid P on node-b) announces a loopback address\n"
            "  rank 1 (pid P on node-b) announces 127.0.1.1\n  rank 0 (pid P on node-a) announces 10.77.0.1\n"
            f"  hint: set GLOO_SOCKET_IFNAME on node-b to one of its interfaces: eth0 ({ETH0_B}); or let its host name resolve "
            "to such an address (Debian's /etc/hosts says 127.0.1.1)\n")
    assert start(cluster) == [text, text]
    assert start(cluster, "1:GLOO_SOCKET_IFNAME=eth0") == STARTED


def test_python_rank_that_announces_loopback(cluster):
    cluster.hosts[1].set_hosts("127.0.1.1 node-b", own=False)
    cpp = start(cluster, python=(1,))[0]
    assert cpp.startswith("ValueError: [cohort] ranks on different hosts cannot connect: rank 1 (a Python process on node-b) "
                          "announces a loopback address\n  rank 1 (a Python process on node-b) announces 127.0.1.1\n")


@pytest.mark.tier_all
@pytest.mark.parametrize("interface, problem", [("eth1", "is down"), ("eth7", "does not exist")])
def test_interface_that_cannot_serve(cluster, interface, problem):
    text = (f"ValueError: [cohort] rank 1 (pid P on node-b) cannot start: GLOO_SOCKET_IFNAME: interface \"{interface}\" {problem}\n"
            f"  hint: this host's interfaces: lo (127.0.0.1, ::1), eth0 ({ETH0_B}), eth1 (down)\n")
    assert start(cluster, f"1:GLOO_SOCKET_IFNAME={interface}") == [text, text]


def test_address_that_swallows_everything(cluster):
    cluster.hosts[1].ip("route", "add", "10.99.0.0/24", "via", "10.77.0.1")  # node-a forwards nothing
    output = start(cluster, "1:MASTER_ADDR=10.99.0.1", "*:@timeout=1500")[1]
    assert output == (
        f"DistNetworkError: [cohort] rank 1 of 2 on node-b cannot reach the store at 10.99.0.1:{PORT}\n"
        "  caused by: 10.99.0.1 (IPv4): no reply to a connection attempt of T; T\n"
        "  hint: no host has this address, or a firewall is in the way; see whether this host can reach that address at all, and whether MASTER_ADDR "
        "and MASTER_PORT name rank 0's host\n")


def test_network_without_a_route(cluster):
    output = start(cluster, "1:MASTER_ADDR=10.99.0.1", "*:@timeout=900")[1]
    assert "  caused by: 10.99.0.1 (IPv4): Network is unreachable (ENETUNREACH); T\n" in output


def test_name_that_means_another_host_on_the_client(cluster):
    cluster.hosts[0].set_hosts("10.77.0.1 master", "fd77::1 master")
    cluster.hosts[1].set_hosts("10.77.0.2 master")
    server, client = start(cluster, "*:MASTER_ADDR=master", "*:@timeout=1500")
    assert client == (
        f"DistNetworkError: [cohort] rank 1 of 2 on node-b cannot reach the store at master:{PORT}\n"
        "  caused by: 10.77.0.2 (IPv4): Connection refused (ECONNREFUSED); T\n"
        "  hint: nothing listens there: see whether rank 0 runs on that host and whether all ranks have the same MASTER_ADDR and "
        "MASTER_PORT; if rank 0 only comes later, raise InitOptions::timeout\n")
    assert "rank 1 never arrived" in server


def test_name_that_means_another_host_on_rank_0(cluster):
    for host in cluster.hosts:
        host.set_hosts("10.77.0.2 master")
    server = start(cluster, "*:MASTER_ADDR=master", "*:@timeout=1500")[0]
    assert re.sub("this host: .*", "this host: ...", server) == (
        "DistStoreError: [cohort] init_process_group timed out: rank 1 never arrived\n"
        f"  rank 0 (pid P on node-a) waited 1.5 s at master:{PORT}, which it hosts\n"
        "  arrived: rank 0 (pid P on node-a)\n"
        "  caused by: Timed out after 2 seconds waiting for clients. 1/2 clients joined.\n"
        "  caused by: master resolves to 10.77.0.2, which is not an address of this host: ...\n"
        "  hint: see whether rank 1 started, and with the same meeting place; if so, raise InitOptions::timeout\n")


@pytest.mark.tier_all
def test_forced_ip_family(cluster):
    for host in cluster.hosts:
        host.set_hosts("10.77.0.1 master", "fd77::1 master")
    assert start(cluster, "*:MASTER_ADDR=fd77::1", "*:COHORT_IP_FAMILY=6") == STARTED
    assert start(cluster, "*:MASTER_ADDR=master", "*:COHORT_IP_FAMILY=6") == STARTED
    text = ("ValueError: [cohort] ranks announce addresses of different families and cannot connect\n"
            "  rank 0 (pid P on node-a) announces 10.77.0.1 (IPv4)\n  rank 1 (pid P on node-b) announces fd77::2 (IPv6)\n"
            "  hint: set COHORT_IP_FAMILY=4, or 6, on every rank, or name interfaces in GLOO_SOCKET_IFNAME\n")
    assert start(cluster, "*:MASTER_ADDR=master", "0:COHORT_IP_FAMILY=4", "1:COHORT_IP_FAMILY=6") == [text, text]


def test_one_rank_on_two_hosts(cluster):
    a, b = cluster.hosts
    outputs = start(cluster, "*:WORLD_SIZE=3", ranks=[(a, 0), (a, 1), (b, 1)])
    one, two = ("  the first: pid P on node-a\n  the second: pid P on node-b\n",
                "  the first: pid P on node-b\n  the second: pid P on node-a\n")
    head, hint = ("ValueError: [cohort] two processes have rank 1\n",
                  "  hint: give each process a RANK of its own; the first may be left over from an earlier run\n")
    assert outputs in ([head + one + hint] * 3, [head + two + hint] * 3)
