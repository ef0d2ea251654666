"""Parts of a job that die, stop or run dry, at once or in any order: who says what, and that nothing is left over.

Real processes on one host; the workers are shell scripts. A node's silence counts as its loss after 2.4 s here.
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from harness import free_port, wait_for_etcd
from jobs import COHORT, Job, wait_until
from process_tree import read_process, state_of

SLEEP = "echo size=$WORLD_SIZE rank=$RANK count=$TORCHELASTIC_RESTART_COUNT.; exec sleep 1000"


def plain(text, job):
    """Without what differs from run to run."""
    text = re.sub(r"\bpid \d+", "pid P", text)
    text = re.sub(rf"\b{os.uname().nodename}\b", "HOST", text)
    text = re.sub(r"[0-9a-f-]{32,36}_\w{6}", "RUN", text)
    return text.replace(str(job.folder), "FOLDER").replace(str(job.port), "PORT")


def wait_for_end_of_guard(pid):
    """On a busy machine a signal takes its time."""
    wait_until(lambda: (state_of(pid) or "Z")[0] == "Z", "the guard's end")


def messages(agent):
    """The launcher's own lines, without the report of failed workers."""
    text = plain(agent.errors, agent.job)
    return [line for line in text.splitlines() if re.match(r"\[cohort\]|  (caused by|hint)", line)]


def assert_says(agent, *expected):
    said = messages(agent)
    for line in expected:
        assert line in said, agent.errors


def start_two(job, script=SLEEP, **kwargs):
    """Two nodes that run; the first hosts the store. With nodes="1:2" the first has run alone before."""
    first = job.node(script, **kwargs)
    if kwargs.get("nodes") == "1:2":
        first.wait_for_output("size=1 ")
    wait_until(lambda: job.port in job.listening_ports(), lambda: first.errors)
    second = job.node(script, **kwargs)
    for agent in (first, second):
        agent.wait_for_output("size=2")
    return first, second


def kill_all(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # the launcher may have been faster, because of the first
            os.kill(pid, number)


# Workers.


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_several_workers_at_once(job, number):
    agent = job.start_script("echo count=$TORCHELASTIC_RESTART_COUNT.; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 1000",
                             "--nproc-per-node=4", "--max-restarts=1")
    agent.wait_for_output("count=0.", count=4)
    wait_until(lambda: len(agent.workers()) == 4, agent.workers)
    kill_all(agent.workers()[:3], number)
    assert agent.finish() == 0, agent.errors
    assert agent.output.count("count=1.") == 4
    assert agent.errors.count("[cohort] warning: restarting the workers, restart 1 of 1: rank ") == 1
    job.check_nothing_left()


def test_workers_of_both_nodes_at_once_use_up_one_restart(job):
    script = "echo size=$WORLD_SIZE count=$TORCHELASTIC_RESTART_COUNT.; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 1000"
    agents = [job.node(script, "--max-restarts=1") for _ in range(2)]
    for agent in agents:
        agent.wait_for_output("count=0.")
    kill_all([pid for agent in agents for pid in agent.workers()], signal.SIGKILL)
    assert [agent.finish() for agent in agents] == [0, 0], agents[0].errors + agents[1].errors
    assert [agent.output.count("count=1.") for agent in agents] == [1, 1]
    job.check_nothing_left()


def test_last_failure_is_reported_where_it_happened(job):
    script = "echo size=$WORLD_SIZE.; [ $RANK = 0 ] || { sleep 0.2; exit 7; }; exec sleep 1000"
    agents = [job.node(script) for _ in range(2)]
    assert [agent.finish() for agent in agents] == [1, 1]
    agents.sort(key=lambda agent: "FAILED" in agent.errors)
    assert messages(agents[0]) == [
        "[cohort] warning: rank 1 (pid P) on node 1 (HOST) failed with exit code 7; stopping this node's workers",
        "[cohort] error: the job has failed: rank 1 (pid P) on node 1 (HOST) failed with exit code 7",
        "  hint: see what the launcher printed on node 1 (HOST)"]
    assert "FAILED" not in agents[0].errors, "how a worker ends that is told to is no news"
    assert "exitcode  : 7 " in agents[1].errors
    job.check_nothing_left()


def test_worker_children_go_with_it(job):
    agent = job.start_script("(trap '' TERM; sleep 1000) & echo ready.; wait")
    agent.wait_for_output("ready.")
    os.kill(agent.workers()[0], signal.SIGKILL)
    assert agent.finish() == 1
    assert "left behind by a worker\n" in agent.errors
    job.check_nothing_left()


# Agents.


def test_agent_of_rank_0_that_hosts_the_store(job):
    first, second = start_two(job)
    first.kill()
    assert second.finish() == 1
    assert_says(second,
                "[cohort] error: cohort run: the rendezvous store at 127.0.0.1:PORT is gone",
                "  hint: see why the agent that hosts it has ended or cannot be reached, and start the job again; with --rdzv-backend=etcd a job "
                "outlives its first node")
    assert first.finish() == -signal.SIGKILL
    job.check_nothing_left()


def test_agent_of_another_node(job):
    first, second = start_two(job, nodes="1:2")
    second.kill()
    first.wait_for_output("size=1 ", count=2)
    assert second.finish() == -signal.SIGKILL
    assert any(re.fullmatch(r"\[cohort\] warning: restarting the workers \(this does not count against "
                            r"--max-restarts\): HOST \(pid P\) gave no sign of "
                            r"life for 2\.4 s", line) for line in messages(first)), first.errors
    first.kill(signal.SIGTERM)
    assert first.finish() == 1
    job.check_nothing_left()


@pytest.mark.tier_all
def test_agent_without_which_there_are_too_few(job):
    first, second = start_two(job, conf="join_timeout=5")
    second.kill()
    assert first.finish() == 1
    assert_says(first, '[cohort] error: cohort run: the rendezvous "job" at 127.0.0.1:PORT was not complete within 5.0 s',
                "  caused by: 1 of 2 nodes has arrived (HOST); waiting for 1 more",
                "  hint: start the same command again on another host or on the lost node's host; "
                "with --nnodes=1:2 a job goes on with fewer nodes")
    job.check_nothing_left()


def test_store_of_its_own(job):
    store = subprocess.Popen([COHORT, "store", "--host", "127.0.0.1", "--port", str(job.port)], env=job.environment(),
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    store.stdout.readline()
    agents = [job.node(SLEEP, conf="is_host=0") for _ in range(2)]
    for agent in agents:
        agent.wait_for_output("size=2")
    store.kill()
    store.wait()
    assert [agent.finish() for agent in agents] == [1, 1]
    for agent in agents:
        assert_says(agent, "[cohort] error: cohort run: the rendezvous store at 127.0.0.1:PORT is gone")
    job.check_nothing_left()


class Etcd:
    """A real etcd on 127.0.0.1; its data stay when it is killed."""

    def __init__(self, folder):
        self.folder, self.port, self.peer_port = folder / "etcd", free_port(), free_port()
        self.start()

    def start(self):
        client, peer = (f"http://127.0.0.1:{port}" for port in (self.port, self.peer_port))
        self.process = subprocess.Popen(
            ["etcd", "--data-dir", self.folder, "--listen-client-urls", client, "--advertise-client-urls", client,
             "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
             "--logger=zap", "--log-level=error"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def etcd(job):
    if shutil.which("etcd") is None:
        pytest.skip("etcd is not installed (Debian: etcd-server)")
    etcd = Etcd(job.folder)
    wait_for_etcd(f"http://127.0.0.1:{etcd.port}")
    yield etcd
    etcd.kill()


def etcd_node(job, etcd, script, *flags, nodes="1:2", conf="read_timeout=5"):
    return job.start_script(script, f"--nnodes={nodes}", "--rdzv-backend=etcd", f"--rdzv-endpoint=127.0.0.1:{etcd.port}",
                            "--rdzv-id=job", f"--rdzv-conf=keep_alive_interval=0.5,last_call_timeout=0.5,{conf}", *flags)


def test_etcd_restarted(job, etcd):
    """The job neither ends nor notices, and its restarts still work."""
    script = "echo size=$WORLD_SIZE count=$TORCHELASTIC_RESTART_COUNT.; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 1000"
    conf = "read_timeout=60,keep_alive_max_attempt=60"
    agents = [etcd_node(job, etcd, script, "--max-restarts=1", nodes=2, conf=conf) for _ in range(2)]
    for agent in agents:
        agent.wait_for_output("size=2 count=0.")
    workers = [agent.workers() for agent in agents]
    etcd.kill()
    etcd.start()
    time.sleep(2)
    assert [agent.workers() for agent in agents] == workers
    os.kill(workers[1][0], signal.SIGKILL)
    assert [agent.finish() for agent in agents] == [0, 0], agents[0].errors + agents[1].errors
    assert all("size=2 count=1." in agent.output for agent in agents)
    job.check_nothing_left()


@pytest.mark.parametrize("victim", [0, 1])
def test_any_agent_of_a_job_over_etcd(job, etcd, victim):
    """No node is the one that must live."""
    agents = [etcd_node(job, etcd, SLEEP) for _ in range(2)]
    for agent in agents:
        agent.wait_for_output("size=2")
    agents[victim].kill()
    other = agents[1 - victim]
    size_one = other.output.count("size=1 ") + 1
    other.wait_for_output("size=1 ", count=size_one)
    other.kill(signal.SIGTERM)
    assert other.finish() == 1
    job.check_nothing_left()


@pytest.mark.tier_all
def test_etcd_that_stays_away(job, etcd):
    agent = etcd_node(job, etcd, SLEEP, nodes=1, conf="join_timeout=2,read_timeout=1")
    agent.wait_for_output("size=1")
    etcd.kill()
    agent.wait_for_errors(f"warning: etcd at 127.0.0.1:{etcd.port} does not answer; the workers go on meanwhile, for 2.0 s at most\n")
    assert agent.finish() == 1
    assert_says(agent, f"[cohort] error: cohort run: etcd at 127.0.0.1:{etcd.port} does not answer")
    job.check_nothing_left()


# What only stands still.


def test_stopped_agent_comes_back(job):
    first, second = start_two(job, nodes="1:2")
    second.kill(signal.SIGSTOP)
    first.wait_for_output("size=1 ", count=2)
    second.kill(signal.SIGCONT)
    for agent in (first, second):
        agent.wait_for_output("size=2 ", count=2)
    assert_says(second, "[cohort] warning: the other nodes lost this one, node 1 (HOST) (it was stopped, cut off, or too busy): HOST "
                "(pid P) gave no sign of life for 2.4 s; stopping this node's workers")
    for agent in (first, second):
        agent.kill(signal.SIGTERM)
    assert [agent.finish() for agent in (first, second)] == [1, 1]
    job.check_nothing_left()


@pytest.mark.tier_all
def test_stopped_host_of_the_store(job):
    first, second = start_two(job, nodes="1:2")
    first.kill(signal.SIGSTOP)
    assert second.finish() == 1
    assert_says(second, "[cohort] error: cohort run: the rendezvous store at 127.0.0.1:PORT is gone")
    first.kill(signal.SIGCONT)
    first.wait_for_output("size=1 ", count=2)
    first.kill(signal.SIGTERM)
    assert first.finish() == 1
    job.check_nothing_left()


def test_stopped_guard_does_not_hold_anybody_up(job):
    agent = job.start_script("echo ready.; exec sleep 1000")
    agent.wait_for_output("ready.")
    guard = agent.guard()
    os.kill(guard, signal.SIGSTOP)
    agent.kill(signal.SIGTERM)
    assert agent.finish() == 1
    job.check_nothing_left()


# Impatience.


def test_second_interrupt_kills_at_once_on_this_node_only(job):
    stubborn = "trap '' INT TERM; echo size=$WORLD_SIZE rank=$RANK count=$TORCHELASTIC_RESTART_COUNT.; while :; do sleep 1; done"
    first, second = start_two(job, stubborn)
    second.kill(signal.SIGINT)
    second.wait_for_errors("received SIGINT, forwarding it to the workers")
    assert second.workers(), "the first is no kill"
    second.kill(signal.SIGINT)
    assert second.finish() == 1
    assert "received SIGINT while stopping: killing rank " in second.errors
    # The other node is stopping its workers for that reason; what is asked of it now counts nevertheless.
    first.wait_for_errors("has left: it was stopped by SIGINT")
    first.kill(signal.SIGTERM)
    first.wait_for_errors("[cohort] warning: received SIGTERM; the workers are being stopped already\n")
    assert first.workers()
    first.kill(signal.SIGQUIT)
    assert first.finish() == 1
    assert_says(first, "[cohort] error: sh was stopped by SIGTERM")
    job.check_nothing_left()


def test_failure_is_reported_though_the_job_was_stopped_after_it(job):
    script = "trap '' TERM INT; echo ready.; [ $RANK = 1 ] || { read line < fifo; exit 7; }; while :; do sleep 1; done"
    os.mkfifo(job.folder / "fifo")
    agent = job.start_script(script, "--nproc-per-node=2", "--max-restarts=3")
    agent.wait_for_output("ready.", count=2)
    (job.folder / "fifo").write_text("go\n")
    agent.wait_for_errors("failed with exit code 7; stopping the other workers")
    agent.kill(signal.SIGINT)
    assert agent.finish() == 1
    assert_says(agent, "[cohort] warning: received SIGINT while stopping: killing rank 1 (pid P) with SIGKILL",
                "[cohort] error: sh was stopped by SIGINT")
    assert "\nsh FAILED\n" in agent.errors and "exitcode  : 7 " in agent.errors
    assert "restarting" not in agent.errors
    job.check_nothing_left()


# The launcher's own processes, in any order.


@pytest.mark.parametrize("order", ["agent", "agent guard", "guard agent", "guard, later agent"])
def test_no_worker_outlives_its_launcher(job, order):
    agent = job.start_script("trap '' INT TERM HUP; echo ready.; while :; do sleep 1; done", "--nproc-per-node=2")
    agent.wait_for_output("ready.", count=2)
    pids = {"agent": agent.pid, "guard": agent.guard()}
    workers = agent.workers()
    for name in order.replace(", later", "").split():
        os.kill(pids[name], signal.SIGKILL)
        if "later" in order and name == "guard":
            wait_for_end_of_guard(pids["guard"])
            assert agent.workers() == workers, "a job does not need its guard"
    assert agent.finish() == -signal.SIGKILL
    wait_until(lambda: not set(workers) & set(job.processes()), job.processes)
    if order == "agent":
        job.check_nothing_left()


def test_job_whose_guard_is_gone_restarts_and_ends_as_usual(job):
    agent = job.start_script("echo count=$TORCHELASTIC_RESTART_COUNT.; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 1000",
                             "--max-restarts=1")
    agent.wait_for_output("count=0.")
    guard = agent.guard()
    os.kill(guard, signal.SIGKILL)
    wait_for_end_of_guard(guard)
    os.kill(agent.workers()[0], signal.SIGKILL)
    assert agent.finish() == 0, agent.errors
    assert "count=1." in agent.output
    assert_says(agent, "[cohort] warning: the launcher's guard (pid P) was killed; if the launcher is killed too, whatever "
                "its workers have started keeps running")
    job.check_nothing_left()


# Resources that run out.


def full_disk(folder):
    """A command's wrapper: `folder` has 64 KiB for it."""
    folder.mkdir()
    return ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=64k,nr_inodes=40 none "{folder}" && exec "$@"', "sh"]


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting and changing the user take root")


@needs_root
def test_full_disk_under_teed_logs(job):
    logs = job.folder / "logs"
    lines = 4000
    agent = job.start_script(f"i=0; while [ $i -lt {lines} ]; do echo this is line $i of many; i=$((i+1)); done; echo the end.",
                             "--tee=3", f"--log-dir={logs}", wrapper=full_disk(logs))
    assert agent.finish() == 0, agent.errors
    assert agent.output.count("this is line") == lines and "the end." in agent.output
    assert_says(agent, '[cohort] warning: the log file "FOLDER/logs/RUN/attempt_0/0/stdout.log" ends here; the job goes on',
                "  hint: see whether its disk is full, or give another --log-dir")
    assert "No space left on device (ENOSPC)" in agent.errors
    job.check_nothing_left()


@needs_root
def test_full_disk_for_the_log_folder(job):
    logs = job.folder / "logs"
    agent = job.start_script("exit 0", "--nproc-per-node=40", f"--log-dir={logs}", wrapper=full_disk(logs))
    assert agent.finish() == 1
    assert re.fullmatch(
        r'\[cohort\] error: cohort run: cannot create the log folder\n'
        r'  caused by: cannot create folder "FOLDER/logs/RUN/attempt_0/\d+": No space left on device \(ENOSPC\)\n'
        r"  hint: see whether its disk is full and whether this user may write there, or give another --log-dir; "
        r"--log-dir=/dev/null keeps no logs", "\n".join(messages(agent)))
    job.check_nothing_left()


@needs_root
def test_full_disk_for_the_log_folder_of_a_restart(job):
    """The job has come so far that its logs are the lesser loss."""
    logs = job.folder / "logs"
    fill = f'i=0; while true > "{logs}/$i"; do i=$((i+1)); done 2> /dev/null; exit 1'
    agent = job.start_script(f"[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0; {fill}", "--max-restarts=1", f"--log-dir={logs}",
                             wrapper=full_disk(logs))
    assert agent.finish() == 0, agent.errors
    assert re.search(
        r"\[cohort\] warning: the workers start without log files\n"
        r"  caused by: cannot create the log folder\n"
        r'  caused by: cannot create folder "FOLDER/logs/RUN/attempt_1/0": No space left on device \(ENOSPC\)\n'
        r"  hint: see whether its disk is full and whether this user may write there, or give another --log-dir; "
        r"--log-dir=/dev/null keeps no logs", "\n".join(messages(agent)))
    job.check_nothing_left()


@pytest.fixture
def open_folder():
    """Another user may reach it, unlike pytest's own."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cohort-kill-test-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


PROCESS_LIMIT = ("the limit on processes and threads has been reached: this user's (ulimit -u: {}) or the container's (pids.max "
                 "of its cgroup); raise it, end other processes, or start fewer workers")


def as_user_with_few_processes(folder, limit):
    """A command's wrapper: a user of its own who may have `limit` processes and threads at a time."""
    shutil.copy(COHORT, folder / "cohort")
    return ["setpriv", "--reuid=54321", "--clear-groups", "prlimit", f"--nproc={limit}", "sh", "-c", 'shift; exec "$0" "$@"',
            folder / "cohort"]


@pytest.fixture
def open_job(open_folder):
    job = Job(open_folder)
    for folder in (job.folder, job.temporary):
        folder.chmod(0o777)
    yield job
    job.end()


@needs_root
def test_no_process_for_a_worker(open_folder, open_job):
    agent = open_job.start_script("exec sleep 1000", "--nproc-per-node=8", wrapper=as_user_with_few_processes(open_folder, 6))
    assert agent.finish() == 1
    assert messages(agent) == [
        "[cohort] error: cohort run: cannot start local rank 2", '  caused by: cannot start "sh"',
        "  caused by: fork: Resource temporarily unavailable (EAGAIN)", "  hint: " + PROCESS_LIMIT.format(6)]
    open_job.check_nothing_left()


@needs_root
def test_no_process_for_any_part_of_the_launcher(open_folder, open_job):
    """Whichever fork or thread is the first that fails: the launcher says so and ends."""
    said = []
    for limit in range(1, 20):
        agent = open_job.node("exit 0", nodes="1:2", conf="join_timeout=5",
                              wrapper=as_user_with_few_processes(open_folder, limit))
        code = agent.finish()
        open_job.check_nothing_left()
        if code == 0:
            break
        assert code == 1 and PROCESS_LIMIT.format(limit) in agent.errors, (limit, agent.errors)
        said.append(messages(agent))
    assert code == 0
    threads = "[cohort] error: cohort run: cannot start a thread for the rendezvous: Resource temporarily unavailable (EAGAIN)"
    assert [lines[0] for lines in said] == [
        "[cohort] error: cohort run: cannot start the launcher's guard",
        "[cohort] warning: workers cannot keep snapshots in memory",
        "[cohort] error: cohort run: the rendezvous cannot be hosted at 127.0.0.1:PORT",
        threads, threads, threads,
        "[cohort] error: cohort run: the workers' store cannot be hosted",
        "[cohort] error: cohort run: cannot start local rank 0"]
