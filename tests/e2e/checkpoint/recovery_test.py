"""Ranks, launchers and nodes that are killed: a run with memory snapshots ends with the same bits as one that nobody has disturbed."""
import contextlib
import os
import pathlib
import random
import re
import signal
import time

import pytest

import namespaces
from harness import BUILD
from jobs import Job, wait_until

STEPS = 30
RANK = BUILD / "bin" / "tests" / "recovery_rank"


def start(job, folder, strategy, *words, flags=(), steps=STEPS, **kwargs):
    folder.mkdir(exist_ok=True)
    return job.start(*flags, "--no-python", RANK, folder, strategy, steps, *words, **kwargs)


def one_node(restarts=1):
    return ["--standalone", "--nproc-per-node=2", f"--max-restarts={restarts}"]


def lines(folder, name):
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []


def losses(folder, rank):
    """{step: loss}; a step that was taken twice must have given the same."""
    found = {}
    for line in lines(folder, f"loss.{rank}"):
        step, loss = line.split()
        assert found.setdefault(step, loss) == loss, f"rank {rank}, step {step}"
    return found


def let_go(folder):
    """Ranks that hold=STEP has stopped go on."""
    (folder / "go").touch()


def memory_files(pids):
    """Of Cohort's memory files those that these processes hold."""
    found = set()
    for fd in (fd for pid in pids for fd in pathlib.Path(f"/proc/{pid}/fd").glob("*")):
        try:
            if os.readlink(fd).startswith("/memfd:cohort"):
                found.add((fd.stat().st_ino, fd.stat().st_dev))
        except OSError:
            pass
    return found


def all_memory_files():
    return memory_files(entry for entry in os.listdir("/proc") if entry.isdigit())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """{strategy: folder} of runs that end without a failure."""
    folders = {}
    for strategy in ("ddp", "fsdp", "zero"):
        folder = tmp_path_factory.mktemp(strategy)
        job = Job(tmp_path_factory.mktemp("job"))
        agent = start(job, folder, strategy, "every=1000", flags=one_node())
        assert agent.finish() == 0, agent.errors
        folders[strategy] = folder
    return folders


def assert_same(folder, reference, ranks=2):
    for rank in range(ranks):
        assert lines(folder, f"final.{rank}")[-1].split()[0] == lines(reference, f"final.{rank}")[-1].split()[0], f"rank {rank}"
        assert losses(folder, rank) == losses(reference, rank)


DEATHS = {"step": 6, "get": 12, "copy": 18, "kept": 24}


@pytest.mark.tier_all_where(mode=["overlap"])
@pytest.mark.parametrize("strategy, mode", [("ddp", ""), ("ddp", "overlap"), ("fsdp", "overlap"), ("zero", "")])
def test_rank_dies(job, tmp_path, undisturbed, strategy, mode):
    deaths = "die=" + ",".join(f"1:{step}:{where}" for where, step in DEATHS.items())
    agent = start(job, tmp_path / "out", strategy, deaths, *[mode] * bool(mode), flags=one_node(restarts=len(DEATHS)))
    assert agent.finish() == 0, agent.errors
    resumed = [lines(tmp_path / "out", f"resumed.{rank}") for rank in range(2)]
    assert resumed[0] == resumed[1] and resumed[0][0] == "from the start"
    for (where, step), said in zip(DEATHS.items(), resumed[0][1:], strict=True):
        # A copy may end before its rank does, and the other rank may be stopped in its copy of that step.
        steps = {step - 1} | ({step} if where in ("copy", "kept") else set()) | ({step - 2} if mode else set())
        assert said in [f"step {step} from memory" for step in steps], where
    assert_same(tmp_path / "out", undisturbed[strategy])
    job.check_nothing_left()


@pytest.mark.tier_all
def test_rank_dies_while_it_resumes(job, tmp_path, undisturbed):
    agent = start(job, tmp_path / "out", "ddp", "die=0:5:step,1:0:resume", flags=one_node(restarts=2))
    assert agent.finish() == 0, agent.errors
    assert "restart 2 of 2" in agent.errors
    assert lines(tmp_path / "out", "resumed.1")[1:] == ["step 4 from memory"]
    assert_same(tmp_path / "out", undisturbed["ddp"])


@pytest.mark.tier_all
@pytest.mark.tier_all_where(strategy=["ddp"])
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_killed_at_any_moment(job, tmp_path, undisturbed, strategy):
    """Whatever they do in and between steps, and while they start again."""
    out, chance = tmp_path / "out", random.Random(1)
    agent = start(job, out, strategy, "pause=2", "hold=20", flags=one_node(restarts=40))
    for kill in range(6):
        done = len(lines(out, "loss.0"))
        if kill % 3 < 2:
            # With two steps done, all ranks have kept the first.
            wait_until(lambda: len(lines(out, "loss.0")) > max(done, 1), lambda: agent.errors)
        time.sleep(chance.uniform(0, 0.03))
        workers = wait_until(agent.workers, lambda: agent.errors)
        with contextlib.suppress(ProcessLookupError):  # the launcher was quicker
            os.kill(chance.choice(workers), signal.SIGKILL)
    let_go(out)
    assert agent.finish() == 0, agent.errors
    assert_same(out, undisturbed[strategy])
    assert lines(out, "resumed.0")[-1].endswith("from memory")
    job.check_nothing_left()


@pytest.mark.tier_all
def test_every_so_many_steps(job, tmp_path, undisturbed):
    agent = start(job, tmp_path / "out", "ddp", "every=4", "die=0:11:step", flags=one_node())
    assert agent.finish() == 0, agent.errors
    assert lines(tmp_path / "out", "resumed.1") == ["from the start", "step 8 from memory"]
    assert_same(tmp_path / "out", undisturbed["ddp"])


def test_from_disk_where_memory_has_nothing(job, tmp_path):
    agent = start(job, tmp_path / "out", "ddp", "every=1000", "disk=4", "die=0:11:step", flags=one_node())
    assert agent.finish() == 0, agent.errors
    assert lines(tmp_path / "out", "resumed.1") == ["from the start", "step 8 from disk"]


@pytest.mark.tier_all
def test_memory_is_given_back(job, tmp_path):
    agent = start(job, tmp_path / "out", "ddp", "hold=4", flags=one_node())
    wait_until(lambda: len(lines(tmp_path / "out", "loss.0")) >= 4, lambda: agent.errors)
    held = memory_files(job.processes())
    assert len(held) >= 4
    agent.kill()
    agent.finish()
    wait_until(lambda: not held & all_memory_files(), "the end of its memory files")
    job.check_nothing_left()
    again = start(job, tmp_path / "again", "ddp", "die=0:4:kept+1:4:kept", "hold=8", flags=one_node())
    wait_until(lambda: len(lines(tmp_path / "again", "loss.0")) >= 8, lambda: again.errors)
    held = memory_files(job.processes())
    let_go(tmp_path / "again")
    assert again.finish() == 0, again.errors
    wait_until(lambda: not held & all_memory_files(), "the end of its memory files")


NO_LAUNCHER = ("memory snapshots need `cohort run`, and this process was started without it\n"
               "  hint: start it with cohort run --max-restarts N\n")


def test_without_a_launcher(tmp_path):
    from harness import run_ranks
    (tmp_path / "out").mkdir()
    env = {"TORCHELASTIC_RESTART_COUNT": "0"}
    for code, out, err in run_ranks([[RANK, tmp_path / "out", "ddp", 3]] * 2, env=env):
        assert code == 0, err
        assert err == "[cohort] warning: training goes on without memory snapshots: " + NO_LAUNCHER
    for code, out, err in run_ranks([[RANK, tmp_path / "out", "ddp", 3, "required"]] * 2, env=env):
        assert code == 1
        assert err == "[cohort] memory snapshots cannot be kept: " + NO_LAUNCHER


@pytest.mark.tier_all
def test_files_may_not_be_so_large(job, tmp_path):
    """What a limit forbids on one rank, both do without, and one message says why."""
    script = f'[ "$RANK" = 1 ] && ulimit -f 1000; exec {RANK} {tmp_path}/out ddp 5'
    (tmp_path / "out").mkdir()
    agent = job.start_script(script, "--standalone", "--nproc-per-node=2")
    assert agent.finish() == 0, agent.errors
    assert ("[cohort] warning: training goes on without memory snapshots: rank 1: cannot make " in agent.errors or
            "[cohort] warning: training goes on without memory snapshots: cannot make " in agent.errors), agent.errors
    assert "the size of this process's files is limited to 500.0 KiB (ulimit -f)" in agent.errors, agent.errors
    for rank in range(2):
        assert lines(tmp_path / "out", f"final.{rank}")[0].endswith(" off")


LIMIT = 768 << 20


def make_small_cgroup():
    """(folder, the limit's file) of a group of its own below this process's, with LIMIT; else why there is none."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        file = "memory.limit_in_bytes" if controllers else "memory.max"
        folder = pathlib.Path("/sys/fs/cgroup", "memory" if controllers else "", path.lstrip("/"), f"cohort-test-{os.getpid()}")
        try:
            folder.mkdir()
        except OSError as error:
            return f"no cgroup can be made: {error}", None
        try:
            (folder / file).write_text(str(LIMIT))
            return folder, file
        except OSError as error:
            folder.rmdir()
            why = f"no cgroup with a limit of memory can be made: {error}"
    return locals().get("why", "this process has no cgroup for memory"), None


@pytest.fixture
def small_cgroup(job):
    folder, file = make_small_cgroup()
    if not file:
        print(folder)
        pytest.skip(folder)
    try:
        yield folder, file
    finally:
        job.end()
        wait_until(lambda: not (folder / "cgroup.procs").read_text(), "the end of the group's processes")
        folder.rmdir()


@pytest.mark.tier_all
def test_a_cgroup_that_is_too_small(job, tmp_path, small_cgroup):
    """The kernel would end, without a word, who takes more than its group may have."""
    folder, file = small_cgroup
    wrapper = ["sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh"]
    agent = start(job, tmp_path / "out", "ddp", "extra=2048", flags=one_node(restarts=0), steps=3, wrapper=wrapper)
    assert agent.finish() == 0, agent.errors
    assert "[cohort] warning: training goes on without memory snapshots: " in agent.errors, agent.errors
    said = "1.0 GiB of memory are needed, and the cgroup \"/[^\"]*/" + rf"{folder.name}\" \({file}\) has [0-9.]+ MiB left\n  hint: give the job more memory"
    assert re.search(said, agent.errors), agent.errors
    for rank in range(2):
        assert lines(tmp_path / "out", f"final.{rank}")[0].endswith(" off")
    strict = start(job, tmp_path / "strict", "ddp", "extra=2048", "required", flags=one_node(restarts=0), steps=3, wrapper=wrapper)
    assert strict.finish() == 1
    assert re.search(r"\[cohort\] memory snapshots cannot be kept: (rank [01]: )?" + said, strict.errors), strict.errors
    assert not lines(tmp_path / "strict", "final.0") + lines(tmp_path / "strict", "final.1")


@pytest.fixture
def cluster(tmp_path):
    with namespaces.cluster(tmp_path) as cluster:
        yield cluster


def start_host(job, host, out, strategy, *words, nodes="2", ranks=2, steps=STEPS):
    flags = [f"--nnodes={nodes}", f"--nproc-per-node={ranks}", "--max-restarts=5", "--rdzv-backend=c10d", "--rdzv-id=job",
             f"--rdzv-endpoint=node-a:{job.port}",
             "--rdzv-conf=keep_alive_interval=0.3,keep_alive_max_attempt=8,last_call_timeout=0.3"]
    return start(job, out, strategy, "gloo", *words, flags=flags, steps=steps, wrapper=host.command([]))


# A ring of four adds the numbers of a bucket in an order that depends on their places in it, and DistributedDataParallel orders
# its buckets anew in its second step, the restarted one as well; with unused parameters looked for it never does.
@pytest.mark.tier_all_where(strategy=["ddp", "ddp-unused"])
@pytest.mark.parametrize("strategy, ranks", [("ddp", 1), ("ddp-unused", 2), ("fsdp", 2)])
def test_node_is_replaced(job, tmp_path, cluster, strategy, ranks):
    """A launcher is killed with its workers; a new one finds their states in the other node's memory."""
    reference = tmp_path / "reference"
    whole = start(job, reference, strategy, "gloo", "every=1000", steps=24,
                  flags=["--standalone", f"--nproc-per-node={2 * ranks}"])
    out = tmp_path / "out"
    first, second = [start_host(job, host, out, strategy, "hold=12", ranks=ranks, steps=24) for host in cluster.hosts]
    wait_until(lambda: len(losses(out, 0)) >= 12, lambda: first.errors + second.errors)
    second.kill()
    second.finish()
    let_go(out)
    third = start_host(job, cluster.hosts[1], out, strategy, ranks=ranks, steps=24)
    for agent in (whole, first, third):
        assert agent.finish() == 0, agent.errors
    resumed = sorted(lines(out, f"resumed.{rank}")[-1].split(" ", 2)[2] for rank in range(2 * ranks))
    assert resumed[:ranks] == ["from memory"] * ranks, resumed
    assert all(text.startswith("from the memory of node ") for text in resumed[ranks:]), resumed
    assert_same(out, reference, ranks=2 * ranks)
    job.check_nothing_left()


@pytest.mark.tier_all
def test_survivors_go_on_with_fewer_ranks(job, tmp_path, cluster):
    out = tmp_path / "out"
    first, second = [start_host(job, host, out, "ddp", "hold=6", nodes="1:2", steps=12) for host in cluster.hosts]
    wait_until(lambda: len(losses(out, 3)) >= 6, lambda: first.errors + second.errors)
    second.kill()
    second.finish()
    let_go(out)
    assert first.finish() == 0, first.errors
    last = lines(out, "resumed.0")[-1]
    assert last.endswith(" from memory (inexact)"), last
