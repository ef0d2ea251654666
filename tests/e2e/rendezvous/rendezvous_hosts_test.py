"""A rendezvous over two hosts, which are network namespaces: as users type it, and what each node says when it cannot meet the other."""
import re

import pytest

import namespaces
from rendezvous_nodes import QUICK, Node

pytestmark = pytest.mark.tier_all  # rendezvous_test has the same nodes on one host

PORT = 29411


@pytest.fixture
def hosts(tmp_path):
    with namespaces.cluster(tmp_path) as cluster:
        yield cluster.hosts


@pytest.fixture
def start():
    nodes = []

    def start_node(host, endpoint, *flags, conf="", backend="c10d", env=None):
        nodes.append(Node(f"--rdzv-endpoint={endpoint}", "--rdzv-id=job", *flags, conf=QUICK + conf, backend=backend,
                          command=host.command, env=env))
        return nodes[-1]

    yield start_node
    for node in nodes:
        node.close()


def meet(nodes, address_a="10.77.0.1", address_b="10.77.0.2", number=0):
    """Both are in the round, by their addresses."""
    for rank, node in enumerate(nodes):
        store = rf"\[?{re.escape(address_a)}\]?"
        assert re.fullmatch(rf"round {number} restart 0 rank {rank} of 2 store {store}:\d+ "
                            rf"nodes node-a@{re.escape(address_a)} node-b@{re.escape(address_b)}", node.next())


@pytest.mark.parametrize("first, second", [("127.0.0.1", "10.77.0.1"), ("localhost", "node-a"), ("node-a", "node-a"),
                                           ("10.77.0.1", "node-a")])
def test_the_first_node_by_any_of_its_names(hosts, start, first, second):
    meet([start(hosts[0], f"{first}:{PORT}", "--nnodes=2"), start(hosts[1], f"{second}:{PORT}", "--nnodes=2")])


def test_the_second_node_may_host(hosts, start):
    meet([start(hosts[0], f"node-b:{PORT}", "--nnodes=2"), start(hosts[1], f"localhost:{PORT}", "--nnodes=2")])


def test_ipv6_alone(hosts, start):
    endpoints = [f"[::1]:{PORT}", f"[fd77::1]:{PORT}"]
    meet([start(host, endpoint, "--nnodes=2", conf=",ip_family=6") for host, endpoint in zip(hosts, endpoints)],
         "fd77::1", "fd77::2")


def test_ipv6_by_the_variable(hosts, start):
    for host in hosts:
        host.set_hosts("fd77::1 head")
    meet([start(host, f"head:{PORT}", "--nnodes=2", env={"COHORT_IP_FAMILY": "6"}) for host in hosts], "fd77::1", "fd77::2")


def test_static_with_the_default_address_on_the_first_node(hosts, start):
    meet([start(hosts[0], f"127.0.0.1:{PORT}", "--nnodes=2", "--node-rank=0", backend="static"),
          start(hosts[1], f"10.77.0.1:{PORT}", "--nnodes=2", "--node-rank=1", backend="static")])


def test_bind_narrows_the_store(hosts, start):
    first = start(hosts[0], f"127.0.0.1:{PORT}", "--nnodes=2", conf=",bind=127.0.0.1")
    first.wait_for_errors(f"hosts the rendezvous at 127.0.0.1:{PORT} and listens on 127.0.0.1")
    second = start(hosts[1], f"10.77.0.1:{PORT}", "--nnodes=2", conf=",join_timeout=1")
    text = second.next()
    assert re.match(rf"error: no rendezvous store answered at 10\.77\.0\.1:{PORT} within \S+ m?s\n"
                    rf"  caused by: cannot connect to 10\.77\.0\.1:{PORT} within \S+ m?s\n"
                    rf"  caused by: 10\.77\.0\.1:{PORT}: Connection refused \(ECONNREFUSED\)\n", text)


def test_bind_of_the_stores_host_given_to_every_node(hosts, start):
    conf = ",bind=10.77.0.1"
    nodes = [start(hosts[0], f"node-a:{PORT}", "--nnodes=2", conf=conf),
             start(hosts[1], f"node-a:{PORT}", "--nnodes=2", "--local-addr=10.77.0.2", conf=conf)]
    assert [node.round() for node in nodes] == [f"round 0 restart 0 rank {rank} of 2" for rank in (1, 0)]


def test_loopback_on_both_hosts_is_named(hosts, start):
    nodes = [start(host, f"127.0.0.1:{PORT}", "--nnodes=2", conf=",join_timeout=3") for host in hosts]
    for node, host in zip(nodes, hosts):
        assert node.next() == (
            f'error: the rendezvous "job" at 127.0.0.1:{PORT} was not complete within 3.0 s\n'
            f"  caused by: 1 of 2 nodes has arrived ({host.name}); waiting for 1 more\n"
            f"  hint: --rdzv-endpoint=127.0.0.1:{PORT} means each host itself: on other hosts give {host.address} or {host.address6} "
            f"or {host.name}")


def test_a_name_that_means_this_host_by_mistake_is_named(hosts, start):
    hosts[1].set_hosts("127.0.1.1 node-a")
    node = start(hosts[1], f"node-a:{PORT}", "--nnodes=2")
    assert node.next() == (
        "error: --rdzv-endpoint=node-a is not this host's name (node-b), but means a loopback address here (127.0.1.1, 10.77.0.1)\n"
        "  hint: give the address of the node that should host the rendezvous; on that node itself "
        "--rdzv-conf is_host=1 works too")
    assert node.ended() == 1


def test_a_host_that_is_cut_off_is_missed_and_learns_of_it(hosts, start):
    nodes = [start(host, f"node-a:{PORT}", "--nnodes=1:2", conf=",last_call_timeout=3") for host in hosts]
    meet(nodes)
    hosts[1].ip("link", "set", "eth0", "down")
    assert nodes[0].next() == "over node-lost by 1: node-b gave no sign of life for 2.0 s"
    nodes[0].order("next")
    assert nodes[0].round() == "round 1 restart 0 rank 0 of 1"
    text = nodes[1].next()
    assert re.match(rf"error: the rendezvous store at node-a:{PORT} is gone\n  caused by: the store on node-a:{PORT} is lost: ", text)
    hosts[1].ip("link", "set", "eth0", "up")
    again = start(hosts[1], f"node-a:{PORT}", "--nnodes=1:2")
    assert nodes[0].next() == "over nodes-waiting by -1: node-b has arrived, and there is room for 1"
    nodes[0].order("next")
    meet([nodes[0], again], number=2)


def test_a_short_cut_is_not_noticed(hosts, start):
    conf = ",keep_alive_max_attempt=40"
    nodes = [start(host, f"node-a:{PORT}", "--nnodes=2", conf=conf) for host in hosts]
    meet(nodes)
    hosts[1].ip("link", "set", "eth0", "down")
    assert nodes[0].is_quiet(1)
    hosts[1].ip("link", "set", "eth0", "up")
    for node in nodes:
        node.order("success")
    for node in nodes:
        assert node.next() == "over finished by -1 ends: every worker has ended with 0"


def test_the_token_keeps_strangers_out(hosts, start, tmp_path):
    secrets = [tmp_path / name for name in ("right", "wrong")]
    for secret in secrets:
        secret.write_text(secret.name + "-secret\n")
        secret.chmod(0o600)
    first = start(hosts[0], f"node-a:{PORT}", "--nnodes=2", conf=f",token_file={secrets[0]}")
    first.wait_for_errors("1 of 2 nodes has arrived")
    for conf in ("", f",token_file={secrets[1]}"):
        stranger = start(hosts[1], f"node-a:{PORT}", "--nnodes=2", conf=conf)
        text = stranger.next()
        assert text.startswith("error: refused: "), text
        assert "token" in text, text
        assert stranger.ended() == 1
    meet([first, start(hosts[1], f"node-a:{PORT}", "--nnodes=2", env={"COHORT_TOKEN": "right-secret"})])
