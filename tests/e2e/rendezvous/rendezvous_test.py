"""A rendezvous of processes: kills, stops, spares, timeouts. The nodes' own program: programs/rendezvous."""
import re
import signal
import subprocess

import pytest

from harness import BUILD
from rendezvous_nodes import HANG, QUICK, Job, Node

COHORT = BUILD / "bin" / "cohort"


class Store:
    """A store alone, so that every node may die."""

    def __enter__(self):
        self.process = subprocess.Popen([COHORT, "store", "--host=127.0.0.1", "--port=0"], stdout=subprocess.PIPE, text=True)
        port = re.fullmatch(r"store: listening on 127\.0\.0\.1, port (\d+)\n", self.process.stdout.readline())[1]
        self.job = Job(f"127.0.0.1:{port}")
        return self.job

    def __exit__(self, *_):
        self.job.__exit__()
        self.process.kill()
        self.process.wait(HANG)
        self.process.stdout.close()


def guests(job, count, num_nodes):
    """Nodes of which none hosts the store; the first leads. They come one after the other, so ranks are theirs in this order."""
    return [job.node(f"--nnodes={num_nodes}", conf=QUICK + ",is_host=0,last_call_timeout=2") for _ in range(count)]


def rounds(nodes):
    """By rank: pids need not grow."""
    lines = {node: node.round() for node in nodes}
    return sorted(nodes, key=lambda node: int(re.search(r"rank (\d+)", lines[node])[1])), sorted(lines.values())


def test_a_killed_node_is_missed_and_the_others_go_on():
    with Store() as job:
        nodes, lines = rounds(guests(job, 3, "2:3"))
        assert lines == [f"round 0 restart 0 rank {rank} of 3" for rank in range(3)]
        nodes[1].kill()
        for node in nodes[0], nodes[2]:
            assert re.fullmatch(r"over node-lost by 1: \S+ \(pid \d+\) gave no sign of life for 2\.0 s", node.next())
            node.order("next")
        left, lines = rounds([nodes[0], nodes[2]])
        assert lines == [f"round 1 restart 0 rank {rank} of 2" for rank in range(2)]
        for node in left:
            node.order("success")
        for node in left:
            assert node.next() == "over finished by -1 ends: every worker has ended with 0"
            assert node.ended() == 0


def test_a_killed_leader_is_replaced():
    with Store() as job:
        first = guests(job, 1, "1:3")[0]
        assert first.round() == "round 0 restart 0 rank 0 of 1"
        others = guests(job, 2, "1:3")
        assert first.next().startswith("over nodes-waiting by -1: ")
        first.kill()
        others, lines = rounds(others)
        assert lines == [f"round 1 restart 0 rank {rank} of 2" for rank in range(2)]


def test_a_killed_leader_in_a_round_is_missed():
    with Store() as job:
        leader = guests(job, 1, "2:3")[0]
        others = guests(job, 2, "2:3")
        by_rank, _ = rounds([leader, *others])
        leader.kill()
        for node in others:
            line = node.next()
            assert re.fullmatch(rf"over node-lost by {by_rank.index(leader)}: \S+ \(pid \d+\) gave no sign of life for 2\.0 s", line)
            node.order("next")
        assert rounds(others)[1] == [f"round 1 restart 0 rank {rank} of 2" for rank in range(2)]


def test_a_stopped_node_is_missed_and_comes_back():
    with Store() as job:
        nodes, _ = rounds(guests(job, 3, "2:3"))
        nodes[2].signal(signal.SIGSTOP)
        for node in nodes[:2]:
            assert node.next().startswith("over node-lost by 2: ")
            node.order("next")
        _, lines = rounds(nodes[:2])
        assert lines == [f"round 1 restart 0 rank {rank} of 2" for rank in range(2)]
        nodes[2].signal(signal.SIGCONT)
        assert nodes[2].next().startswith("over node-lost by 2: ")
        nodes[2].order("next")
        for node in nodes[:2]:
            assert node.next().startswith("over nodes-waiting by ")
            node.order("next")
        assert rounds(nodes)[1] == [f"round 2 restart 0 rank {rank} of 3" for rank in range(3)]


def test_a_stopped_leader_comes_back_as_one_of_many():
    with Store() as job:
        leader = guests(job, 1, "2:2")[0]
        other = guests(job, 1, "2:2")[0]
        rounds([leader, other])
        leader.signal(signal.SIGSTOP)
        assert other.next().startswith("over node-lost by ")
        other.order("next")
        leader.signal(signal.SIGCONT)
        assert leader.next().startswith("over node-lost by ")
        leader.order("next")
        assert rounds([leader, other])[1] == [f"round 1 restart 0 rank {rank} of 2" for rank in range(2)]


def test_a_node_that_leaves_is_missed_at_once():
    slow = "join_timeout=300,last_call_timeout=2,keep_alive_interval=20,keep_alive_max_attempt=3,is_host=0"
    with Store() as job:
        nodes, _ = rounds([job.node("--nnodes=2:3", conf=slow) for _ in range(3)])
        nodes[0].order("leave SIGTERM")
        for node in nodes[1:]:
            assert re.fullmatch(r"over node-left by 0: \S+ has left: SIGTERM", node.next())
            node.order("next")
        assert rounds(nodes[1:])[1] == [f"round 1 restart 0 rank {rank} of 2" for rank in range(2)]


def test_a_spare_takes_the_place_of_a_lost_node():
    with Store() as job:
        nodes, _ = rounds(guests(job, 2, "2:2"))
        spare = guests(job, 1, "2:2")[0]
        assert spare.is_quiet(0.5)
        nodes[1].kill()
        assert nodes[0].next().startswith("over node-lost by 1: ")
        nodes[0].order("next")
        assert rounds([nodes[0], spare])[1] == [f"round 1 restart 0 rank {rank} of 2" for rank in range(2)]


def test_a_spare_ends_with_the_job():
    with Store() as job:
        leader = guests(job, 1, "2:2")[0]
        leader.wait_for_errors("1 of 2 nodes has arrived")
        nodes, _ = rounds([leader, *guests(job, 1, "2:2")])
        spare = guests(job, 1, "2:2")[0]
        leader.wait_for_errors(" as spare")
        assert spare.is_quiet(0)
        for node in nodes:
            node.order("success")
        assert spare.next() == "over closed by -1 ends: every worker has ended with 0"
        assert spare.ended() == 0
        late = guests(job, 1, "2:2")[0]
        assert late.next() == ('error: the job "job" has ended: every worker has ended with 0\n'
                               "  hint: give a new job another --rdzv-id, or another store")


def test_the_loss_of_the_stores_host_is_named():
    with Job() as job:
        host = job.node("--nnodes=1:2")
        host.round()
        survivor = job.node("--nnodes=1:2")
        assert host.next().startswith("over nodes-waiting")
        host.order("next")
        rounds([host, survivor])
        host.kill()
        line = survivor.next()
        assert re.match(rf"error: the rendezvous store at {job.endpoint} is gone\n  caused by: the store on \S+ is lost: ", line)
        assert line.endswith("  hint: see why the agent that hosts it has ended or cannot be reached, and start the job again; with --rdzv-backend=etcd a job "
                             "outlives its first node")
        assert survivor.ended() == 1


def test_a_job_ends_when_the_stores_host_leaves():
    with Job() as job:
        host = job.node("--nnodes=1:2")
        host.round()
        other = job.node("--nnodes=1:2")
        assert host.next().startswith("over nodes-waiting")
        host.order("next")
        by_rank, _ = rounds([host, other])
        host.order("leave SIGTERM")
        assert re.fullmatch(rf"over node-left by {by_rank.index(host)} ends: \S+ has left: SIGTERM; it hosted the rendezvous at "
                            rf"{job.endpoint}", other.next())
        assert other.ended() == 0


@pytest.mark.parametrize("backend", ["c10d", "static"])
def test_a_stores_host_that_was_only_stopped_loses_no_success(backend):
    with Job() as job:
        where = f"--rdzv-endpoint={job.endpoint}"
        nodes = [Node(where, "--rdzv-id=job", "--nnodes=2", f"--node-rank={rank}", backend=backend) for rank in range(2)]
        job.nodes += nodes
        assert sorted(node.round() for node in nodes) == [f"round 0 restart 0 rank {rank} of 2" for rank in range(2)]
        host, other = sorted(nodes, key=lambda node: not any("this node hosts" in line for line in node.errors))
        host.signal(signal.SIGSTOP)
        other.order("success")
        other.wait_for_errors(f"[cohort] warning: the rendezvous store at {job.endpoint} has not answered for 2.0 s; the agent that "
                              "hosts it may be stopped. This node's workers have ended with 0, so it waits for the other nodes, for "
                              "4 min 58 s more")
        assert other.is_quiet(1), (other.lines, other.errors)
        host.signal(signal.SIGCONT)
        host.order("success")
        for node in nodes:
            assert node.next() == "over finished by -1 ends: every worker has ended with 0"
            assert node.ended() == 0


def test_a_time_out_says_who_came():
    with Job() as job:
        node = job.node("--nnodes=3", conf="join_timeout=3,keep_alive_interval=0.25")
        text = node.next()
        assert re.fullmatch(
            rf'error: the rendezvous "job" at {job.endpoint} was not complete within 3\.0 s\n'
            r"  caused by: 1 of 3 nodes has arrived \(\S+\); waiting for 2 more\n"
            rf"  hint: --rdzv-endpoint={job.endpoint} means each host itself: on other hosts give .+", text)
        assert node.ended() == 1


@pytest.mark.tier_all
@pytest.mark.parametrize("flags, variables", [
    (["--node-rank=1"], {}),
    ([], {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_NODEID": "1",
          "SLURM_LOCALID": "0", "SLURM_NNODES": "2", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "node[0-1]",
          "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_STEP_NUM_TASKS": "2", "SLURM_GTIDS": "1"}),
])
def test_nobody_listens_where_the_first_node_should(flags, variables):
    with Job() as job:
        node = job.node("--nnodes=2", *flags, env=variables)
        text = node.next()
        assert re.match(rf"error: --rdzv-endpoint={job.endpoint} means this host itself \(\S+\), but another node hosts the "
                        rf"rendezvous, and nothing listens here\n  caused by: cannot connect to {job.endpoint} within [0-9.]+ m?s\n", text)
        assert text.endswith("  hint: give --rdzv-endpoint the name or address of the first node, on every node")
        assert any("--node-rank=1 is ignored" in line for line in node.errors) == bool(flags)


def test_different_settings_are_named():
    with Job() as job:
        first = job.node("--nnodes=2")
        first.wait_for_errors("1 of 2 nodes has arrived")
        second = job.node("--nnodes=3")
        text = second.next()
        assert re.fullmatch(r"error: --nnodes is 3 here, but 2 on \S+\n  hint: start every node of a job with the same settings", text)


def test_two_nodes_with_one_rank_are_named():
    with Job() as job:
        first = Node("--nnodes=2", f"--rdzv-endpoint={job.endpoint}", "--node-rank=0", backend="static")
        second = Node("--nnodes=2", f"--rdzv-endpoint={job.endpoint}", "--node-rank=1", backend="static")
        third = Node("--nnodes=2", f"--rdzv-endpoint={job.endpoint}", "--node-rank=1", backend="static")
        job.nodes += [first, second, third]
        ends = [second, third]
        assert first.round() == "round 0 restart 0 rank 0 of 2"
        lines = [node.next() for node in ends]
        texts = sorted(line.splitlines()[0] for line in lines)
        assert re.fullmatch(r"error: --node-rank=1 is taken by \S+ \(pid \d+\)", texts[0])
        assert texts[1].startswith("round 0 restart 0 rank 1 of 2 ")


@pytest.mark.parametrize("num_nodes", [1, 4])
def test_nothing_is_left(num_nodes):
    with Job() as job:
        nodes = [job.node(f"--nnodes={num_nodes}") for _ in range(num_nodes)]
        rounds(nodes)
        for node in nodes:
            node.order("success")
        assert [node.ended() for node in nodes] == [0] * num_nodes
        # A node that took the store with it before all had read would have made theirs an error.
        assert [node.next() for node in nodes] == ["over finished by -1 ends: every worker has ended with 0"] * num_nodes
