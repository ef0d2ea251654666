"""A host that is cut off in mid-job and comes back: hosts are network namespaces, the workers shell scripts."""
import os
import pathlib
import re
import signal
import sys
import time

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "e2e")]
import namespaces  # noqa: E402
from jobs import Job  # noqa: E402

PORT = 29517
SLEEP = "echo size=$WORLD_SIZE rank=$RANK on=$(hostname) to=$MASTER_ADDR.; exec sleep 1000"


@pytest.fixture
def cluster(tmp_path):
    with namespaces.cluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path)
    job.port = PORT
    yield job
    job.end()


def start_node(job, host, nodes="1:2", conf=""):
    conf = ",".join(["keep_alive_interval=0.4", "keep_alive_max_attempt=8", "last_call_timeout=0.4", *([conf] if conf else [])])
    return job.start_script(SLEEP, f"--nnodes={nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint=node-a:{PORT}", "--rdzv-id=job",
                            f"--rdzv-conf={conf}", wrapper=host.command([]))


def start_both(job, cluster, **kwargs):
    first = start_node(job, cluster.hosts[0], **kwargs)
    if kwargs.get("nodes", "1:2") == "1:2":
        first.wait_for_output("size=1 ")
    second = start_node(job, cluster.hosts[1], **kwargs)
    for agent in (first, second):
        agent.wait_for_output("size=2 ")
    return first, second


def test_short_cut_is_not_noticed(job, cluster):
    first, second = start_both(job, cluster, conf="keep_alive_max_attempt=20")
    cluster.hosts[1].ip("link", "set", "eth0", "down")
    time.sleep(0.3)
    cluster.hosts[1].ip("link", "set", "eth0", "up")
    time.sleep(3)
    assert first.output.count("size=2 ") == 1 and second.output.count("size=2 ") == 1, first.errors + second.errors
    second.kill(signal.SIGTERM)
    assert second.finish() == 1
    first.wait_for_output("size=1 ", count=2)
    first.kill(signal.SIGTERM)
    assert first.finish() == 1
    job.check_nothing_left()


def test_cut_off_host(job, cluster):
    """The survivor goes on alone within the keep-alive time; the other ends with an error, and a new agent there joins again."""
    first, second = start_both(job, cluster)
    cluster.hosts[1].ip("link", "set", "eth0", "down")
    cut = time.monotonic()
    first.wait_for_output("size=1 ", count=2)
    print(f"the survivor's workers run again {time.monotonic() - cut:.1f} s after the cut")
    assert "node-b gave no sign of life for 3.2 s" in first.errors, first.errors
    assert second.finish() == 1
    assert f"[cohort] error: cohort run: the rendezvous store at node-a:{PORT} is gone\n" in second.errors, second.errors
    cluster.hosts[1].ip("link", "set", "eth0", "up")
    again = start_node(job, cluster.hosts[1])
    again.wait_for_output("size=2 ")
    first.wait_for_output("size=2 ", count=2)
    for agent in (again, first):
        agent.kill(signal.SIGTERM)
        assert agent.finish() == 1
    job.check_nothing_left()
