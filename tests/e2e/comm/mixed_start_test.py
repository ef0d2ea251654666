"""Starts of C++ and Python ranks in one job that cannot succeed, and those at a launcher's store."""
import os
import re
import signal
import socket
import subprocess
import sys
from datetime import timedelta

import pytest
import torch.distributed as dist

from harness import BUILD, free_port
from jobs import wait_until

pytestmark = pytest.mark.tier_all  # interop_test has the usual starts

PYTHON_RANK = """
import os, sys, time, torch, torch.distributed as dist
from datetime import timedelta
dist.init_process_group("gloo", init_method=sys.argv[1], rank=int(sys.argv[2]), world_size=int(sys.argv[3]),
                        timeout=timedelta(seconds=120))
one = torch.ones(1)
dist.all_reduce(one)
assert one.item() == dist.get_world_size()
print("started", flush=True)
if "stay" in sys.argv: time.sleep(100)
dist.destroy_process_group()
os._exit(0)  # the interpreter's own end may abort: see ddp_reference.py
"""


# The twin of groups_of_several_lives in tests/comm/group/process_group_test.cpp.
GROUPS_OF_SEVERAL_LIVES = """
import os, sys, torch, torch.distributed as dist
from datetime import timedelta
for path in sys.argv[1:]:
    dist.init_process_group("gloo", init_method="file://" + path, rank=int(os.environ["RANK"]), world_size=2,
                            timeout=timedelta(seconds=120))
    local = dist.new_group([0, 1], use_local_synchronization=True)
    first = dist.new_group([0, 1])
    ones = torch.ones(1)
    dist.all_reduce(ones, group=first)
    dist.destroy_process_group(first)
    second = dist.new_group([1, 0])
    for group in (dist.group.WORLD, local, second):
        dist.all_reduce(ones, group=group)
        print(group.group_name, end=" ")
    print(f"{ones.item():g}", flush=True)
    dist.destroy_process_group()
os._exit(0)
"""


class Job:
    """The ranks of one job; whatever still runs at the end is killed."""

    def __init__(self, url, world_size, env=None):
        self.url, self.world_size, self.env = url, world_size, dict(os.environ, OMP_NUM_THREADS="1", **(env or {}))
        self.processes = []

    def start(self, program, rank):
        env = dict(self.env, RANK=str(rank), WORLD_SIZE=str(self.world_size))
        process = subprocess.Popen([str(word) for word in program], env=env, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.processes.append(process)
        return process

    def cpp(self, rank, *orders):
        """It waits for longer than a busy machine takes to load PyTorch in Python, if `orders` say nothing else."""
        return self.start([BUILD / "bin" / "cohort_comm_test", "--worker=start", "*:@timeout=120000", f"*:@url={self.url}", *orders],
                          rank)

    def python(self, rank, *words):
        return self.start([sys.executable, "-c", PYTHON_RANK, self.url, rank, self.world_size, *words], rank)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.communicate()


def outcome(process):
    out, err = process.communicate(timeout=300)
    text = re.sub(r"^begins\n", "", out)
    text = re.sub(r"(pid )\d+", r"\1P", text)
    return re.sub(f" on {socket.gethostname()}\\b", " on HOST", text) or err


@pytest.fixture
def agent():
    """A store as torchrun's agent hosts it, and the variables that send ranks there."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    return store, env


@pytest.mark.parametrize("kinds", [("cpp", "python"), ("python", "cpp", "cpp")])
@pytest.mark.parametrize("lazy", ["0", "1"])
def test_mixed_ranks_start_at_an_agents_store(agent, kinds, lazy):
    store, env = agent
    with Job("env://", len(kinds), dict(env, TORCH_GLOO_LAZY_INIT=lazy)) as job:
        ranks = [getattr(job, kind)(rank) for rank, kind in enumerate(kinds)]
        assert [outcome(rank) for rank in ranks] == ["started\n"] * len(kinds)


def test_a_python_rank_means_gloo_where_no_backend_is_named(agent):
    store, env = agent
    with Job("env://", 3, dict(env, COHORT_LOG_LEVEL="info")) as job:
        ranks = [job.cpp(0, "*:@backend="), job.python(1), job.cpp(2, "*:@backend=")]
        ended = [rank.communicate(timeout=300) for rank in ranks]
    assert [out.replace("begins\n", "") for out, _ in ended] == ["started\n"] * 3
    for rank in (0, 2):
        assert f"rank {rank} of 3, backend cpu:gloo, as rank 1 is a Python process without torchcohort\n" in ended[rank][1]


def test_shm_with_a_python_rank_is_refused_on_all_ranks(agent):
    store, env = agent
    with Job("env://", 3, env) as job:
        job.python(1)
        ranks = [job.cpp(0, "*:@backend=shm"), job.cpp(2, "*:@backend=shm")]
        text = ("ValueError: [cohort] group \"default_pg\" cannot use backend \"shm\"\n"
                "  caused by: rank 1 is a Python process without torchcohort\n"
                "  hint: use backend \"gloo\"; or name no backend: Cohort then uses \"shm\" where all ranks can share memory\n")
        assert [outcome(rank) for rank in ranks] == [text, text]


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_time_out_tells_python_ranks_that_came(agent, lazy):
    store, env = agent
    with Job("env://", 4, dict(env, TORCH_GLOO_LAZY_INIT=lazy)) as job:
        python = job.python(2)
        store.wait(["default_pg/0//cpu//0/2"], timedelta(seconds=300))
        text = outcome(job.cpp(0, "*:@timeout=3000"))
        python.kill()
    assert text == (
        "DistStoreError: [cohort] init_process_group timed out: ranks 1 and 3 never arrived\n"
        f"  rank 0 (pid P on HOST) waited 3.0 s at 127.0.0.1:{store.port}\n"
        "  arrived: rank 0 (pid P on HOST), rank 2 (a Python process on HOST)\n"
        "  caused by: Timed out after 3 seconds waiting for clients. 2/4 clients joined.\n"
        "  hint: see whether ranks 1 and 3 started, and with the same meeting place; if so, raise InitOptions::timeout\n")


def test_python_rank_that_died_is_named(agent):
    store, env = agent
    with Job("env://", 3, env) as job:
        python = job.python(1)
        store.wait(["default_pg/0//cpu//0/1"], timedelta(seconds=300))
        waiting = job.cpp(0)
        store.wait(["default_pg/0//cohort/start/0"], timedelta(seconds=300))
        python.kill()
        assert outcome(waiting) == (
            "DistStoreError: [cohort] init_process_group failed: rank 1 (a Python process on HOST) arrived but has ended since\n"
            "  still missing: rank 2\n  hint: look at the output of rank 1 for the reason\n")


def test_groups_made_anew_have_pythons_names_and_barrier(tmp_path):
    """They meet only under the same keys: those of the groups, and those of the barrier after each has been made."""
    with Job("file://", 2, {"TORCH_DIST_INIT_BARRIER": "1"}) as job:
        paths = [tmp_path / "first", tmp_path / "second"]
        ranks = [job.start([sys.executable, "-c", GROUPS_OF_SEVERAL_LIVES, *paths], 0),
                 job.start([BUILD / "bin/cohort_comm_test", "--worker=groups_of_several_lives", *paths], 1)]
        names = "0 4a2ad14e7181d5235b64cf37fcd715cb5ce5c8e7 2 16\n"
        assert [outcome(rank) for rank in ranks] == [names * 2] * 2


@pytest.mark.parametrize("first", ["cpp", "python"])
def test_a_cpp_and_a_python_process_with_one_rank(agent, first):
    store, env = agent
    with Job("env://", 3, env) as job:
        if first == "python":
            job.python(1)
            store.wait(["default_pg/0//cpu//0/1"], timedelta(seconds=300))
            cpp = job.cpp(1)
        else:
            cpp = job.cpp(1)
            store.wait(["default_pg/0//cohort/start/1"], timedelta(seconds=300))
            job.python(1)
        other = job.cpp(0)
        text = ("ValueError: [cohort] two processes have rank 1\n  the first: pid P on HOST\n  the second: pid P on HOST\n"
                "  hint: give each process a RANK of its own; the first may be left over from an earlier run\n")
        assert [outcome(cpp), outcome(other)] == [text, text]


def test_file_left_over_from_python_ranks_that_crashed(tmp_path):
    url = f"file://{tmp_path}/store"
    with Job(url, 2) as job:
        ranks = [job.python(rank, "stay") for rank in range(2)]
        for rank in ranks:
            assert rank.stdout.readline() == "started\n"
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
            rank.wait()
    for kinds in (("cpp", "cpp"), ("python", "cpp")):
        with Job(url, 2) as job:
            ranks = [getattr(job, kind)(rank) for rank, kind in enumerate(kinds)]
            text = outcome(ranks[1])
        text = re.sub("rank [01] of it, a Python process on HOST, has ended|a start that failed there: .*", "REASON", text)
        assert text == (f"DistStoreError: [cohort] the file store {tmp_path}/store is left over from another run\n"
                        f"  caused by: REASON\n  hint: delete {tmp_path}/store, or give each run a path of its own\n")
    os.remove(tmp_path / "store")
    with Job(url, 2) as job:
        assert [outcome(rank) for rank in (job.python(0), job.cpp(1))] == ["started\n"] * 2


def test_web_server_on_the_port():
    port = free_port()
    server = subprocess.Popen([sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        def answers():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0
        wait_until(answers, "the web server")
        with Job("env://", 2, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}) as job:
            texts = [outcome(rank) for rank in (job.cpp(0, "*:@timeout=1500"), job.cpp(1, "*:@timeout=1500"))]
    finally:
        server.kill()
        server.wait()
    assert texts[0] == (
        f"DistNetworkError: [cohort] rank 0 of 2 on HOST cannot host the store: port {port} is in use\n"
        f"  caused by: pid P listens on it: {sys.executable} -m http.server {port} --bind 127.0.0.1\n"
        "  hint: end that process, or choose another port in MASTER_ADDR and MASTER_PORT, the same on every rank\n")
    assert texts[1].startswith(f"DistNetworkError: [cohort] rank 1 of 2 on HOST cannot reach the store at 127.0.0.1:{port}\n"
                               "  caused by: 127.0.0.1 (IPv4): accepted the connection but gave no answer within ")
    assert texts[1].endswith("\n  hint: another program uses this port; choose another one for MASTER_ADDR and MASTER_PORT, "
                             "the same on every rank\n")
