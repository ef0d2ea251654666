"""cohort run beside the real torchrun: environment, exit codes, failure report, prefixes, Python DDP on Gloo.

What may differ from torchrun is written here, value by value; docs/parity.md gives the reasons.
"""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import textwrap

import pytest

import process_tree
from harness import BUILD, SOURCE

COHORT = BUILD.resolve() / "bin" / "cohort"
PYTHON = SOURCE / ".venv" / "bin" / "python"
HANG_LIMIT = 300

LAUNCHERS = {
    "cohort": [str(COHORT), "run"],
    "torchrun": [str(PYTHON), "-m", "torch.distributed.run"],
}


def launch(name, arguments, cwd, **variables):
    """Runs a launcher to its end. The environment holds no trace of a launcher above us."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PET_", "TORCHELASTIC_", "MASTER_", "OMP_"))
    }
    environment.update(PYTHON_EXEC=str(PYTHON), TMPDIR=str(cwd), **variables)
    return process_tree.run([*LAUNCHERS[name], *arguments], HANG_LIMIT, cwd=cwd, env=environment)


def script(folder, text, name="work.py"):
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return name


PRINT_ENVIRONMENT = """
    import json, os, sys
    path = os.path.join(sys.argv[1], os.environ["RANK"] + ".json")
    json.dump({"env": dict(os.environ), "argv": sys.argv[2:]}, open(path, "w"))
"""


def worker_views(name, tmp_path, flags, **variables):
    """What each worker found in its environment and arguments."""
    folder = tmp_path / name
    folder.mkdir()
    work = script(folder, PRINT_ENVIRONMENT)
    result = launch(name, [*flags, work, folder, "rank-${local_rank}", "$$"], folder, **variables)
    assert result.returncode == 0, result.stderr
    return [json.loads(path.read_text()) for path in sorted(folder.glob("[0-9]*.json"))]


def differences(ours, theirs):
    return {key for key in ours["env"].keys() | theirs["env"].keys() if ours["env"].get(key) != theirs["env"].get(key)}


# Different in every run, or by the launcher's own nature.
ALWAYS_DIFFERENT = {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "TMPDIR", "PWD", "_"}
# The agent's store is at the loopback address instead of the host's name.
PERMITTED = {"MASTER_ADDR", "COHORT_AGENT", "COHORT_JOB", "COHORT_SNAPSHOTS"}


@pytest.mark.parametrize("flags", [["--nproc-per-node=2"], ["--standalone", "--nproc_per_node", "2", "--role=trainer"]])
def test_worker_environment_is_torchruns(tmp_path, flags):
    ours = worker_views("cohort", tmp_path, flags, OMP_NUM_THREADS="1")
    theirs = worker_views("torchrun", tmp_path, flags, OMP_NUM_THREADS="1")
    assert len(ours) == len(theirs) == 2
    for mine, other in zip(ours, theirs):
        assert differences(mine, other) - ALWAYS_DIFFERENT <= PERMITTED
        assert mine["argv"] == other["argv"] == [f"rank-{mine['env']['LOCAL_RANK']}", "$"]
        assert mine["env"]["TORCHELASTIC_USE_AGENT_STORE"] == "True"
        assert mine["env"]["MASTER_ADDR"] == "127.0.0.1"
        assert mine["env"]["TORCHELASTIC_ERROR_FILE"].endswith(
            f"/attempt_0/{mine['env']['LOCAL_RANK']}/error.json")
    assert ours[0]["env"]["MASTER_PORT"] == ours[1]["env"]["MASTER_PORT"]


def test_static_environment_is_torchruns(tmp_path):
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("", 0))
        flags = ["--master-addr=127.0.0.1", f"--master-port={free.getsockname()[1]}"]
        ours = worker_views("cohort", tmp_path, flags)[0]
        theirs = worker_views("torchrun", tmp_path, flags)[0]
    assert ours["env"]["MASTER_ADDR"] == theirs["env"]["MASTER_ADDR"] == "127.0.0.1"
    assert ours["env"]["TORCHELASTIC_RUN_ID"] == theirs["env"]["TORCHELASTIC_RUN_ID"] == "none"
    # The port that was given is the agents'; the workers of each round have a store of their own.
    assert ours["env"]["MASTER_PORT"] != flags[1].split("=")[1]
    assert differences(ours, theirs) - ALWAYS_DIFFERENT <= PERMITTED


def test_threads_per_rank_are_cores_over_ranks(tmp_path):
    ours = worker_views("cohort", tmp_path, ["--nproc-per-node=2"])
    cores = len(os.sched_getaffinity(0))
    assert 1 <= int(ours[0]["env"]["OMP_NUM_THREADS"]) <= max(1, cores // 2)
    single = worker_views("torchrun", tmp_path, [])
    assert "OMP_NUM_THREADS" not in single[0]["env"]


def report_of(stderr):
    """The failure report's lines, values that change from run to run replaced."""
    lines = stderr[stderr.index("\n===") + 1:].rstrip("\n").split("\n")
    shown = []
    for line in lines:
        line = re.sub(r"pid: \d+", "pid: N", line)
        line = re.sub(r"PID \d+", "PID N", line)
        line = re.sub(r"^([=-])\1+$", r"\1", line)  # as wide as the pids have digits
        line = re.sub(r"\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d", "TIME", line)
        line = re.sub(r"^  host      : .*", "  host      : HOST", line)
        shown.append(re.sub(r"^  error_file: /.*/attempt_0/", "  error_file: FOLDER/attempt_0/", line))
    return shown


FAILURES = {
    "exit code": "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(7)\ntime.sleep(1000)\n",
    "signal": "import os, time\nif os.environ['RANK'] == '1': os.kill(os.getpid(), 9)\ntime.sleep(1000)\n",
    "record": "import os, time\n"
              "from torch.distributed.elastic.multiprocessing.errors import record\n"
              "@record\n"
              "def main():\n"
              "    if os.environ['RANK'] == '1': raise ValueError('two\\nlines')\n"
              "    time.sleep(1000)\n"
              "main()\n",
}


@pytest.mark.parametrize("case", FAILURES)
def test_failure_report_and_exit_code_are_torchruns(tmp_path, case):
    work = script(tmp_path, FAILURES[case])
    flags = ["--nproc-per-node=2", f"--log-dir={tmp_path}/logs", work]
    ours = launch("cohort", flags, tmp_path, OMP_NUM_THREADS="1")
    theirs = launch("torchrun", flags, tmp_path, OMP_NUM_THREADS="1")
    assert ours.returncode == theirs.returncode == 1
    assert report_of(ours.stderr) == report_of(theirs.stderr)
    assert f"  host      : {socket.gethostname()}\n" in ours.stderr


@pytest.mark.parametrize("code", [0, 1, 42])
def test_exit_codes_are_torchruns(tmp_path, code):
    work = script(tmp_path, f"import sys\nsys.exit({code})\n")
    ours = launch("cohort", [work], tmp_path)
    theirs = launch("torchrun", [work], tmp_path)
    assert ours.returncode == theirs.returncode == (1 if code else 0)


def test_unknown_flag_ends_with_two_as_torchrun(tmp_path):
    ours = launch("cohort", ["--bogus", "x"], tmp_path)
    theirs = launch("torchrun", ["--bogus", "x"], tmp_path)
    assert ours.returncode == theirs.returncode == 2


def test_tee_prefixes_are_torchruns(tmp_path):
    work = script(tmp_path, """
        import sys
        print("one\\ntwo"); print("10%", end="\\r"); print("20%")
        print("warning", file=sys.stderr)
    """)
    flags = ["--nproc-per-node=2", "--tee=3", "--role=trainer", "--log-dir=logs", work]
    results = {name: launch(name, flags, tmp_path, OMP_NUM_THREADS="1") for name in LAUNCHERS}
    for result in results.values():
        assert result.returncode == 0, result.stderr
    assert sorted(results["cohort"].stdout.split("\n")) == sorted(results["torchrun"].stdout.split("\n"))
    assert "[trainer1]:two\n" in results["cohort"].stdout
    assert results["cohort"].stderr == "[trainer0]:warning\n[trainer1]:warning\n" or (
        results["cohort"].stderr == "[trainer1]:warning\n[trainer0]:warning\n")


def test_module_and_python_flags(tmp_path):
    script(tmp_path, "import sys\nprint(__name__, sys.argv[1:])\n", "trainer.py")
    outputs = [launch(name, ["-m", "trainer", "--lr", "1"], tmp_path).stdout for name in LAUNCHERS]
    assert outputs == ["__main__ ['--lr', '1']\n"] * 2


DDP = """
    import os, torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    model(torch.randn(3, 4)).sum().backward()
    gathered = [torch.empty_like(model.module.weight.grad) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, model.module.weight.grad)
    assert all(torch.equal(gathered[0], other) for other in gathered)
    os.write(1, f"rank {dist.get_rank()} of {dist.get_world_size()}\\n".encode())
    dist.destroy_process_group()
    os._exit(0)  # the interpreter's own end may abort: see ddp_reference.py
"""


def test_python_ddp_trains(tmp_path):
    result = launch("cohort", ["--nproc-per-node=2", script(tmp_path, DDP)], tmp_path)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["rank 0 of 2", "rank 1 of 2"]


def test_two_agents_of_one_job(tmp_path):
    work = script(tmp_path, DDP)
    with socket.socket() as held:  # bound but not listening: nobody else gets the port, rank 0 may listen on it
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        agents = [
            subprocess.Popen(
                LAUNCHERS["cohort"] + ["--nnodes=2", f"--node-rank={node}", "--nproc-per-node=1",
                                       "--master-addr=127.0.0.1", f"--master-port={held.getsockname()[1]}", work],
                cwd=tmp_path, env={**os.environ, "PYTHON_EXEC": str(PYTHON), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for node in range(2)
        ]
        try:
            outputs = [agent.communicate(timeout=HANG_LIMIT)[0] for agent in agents]
        finally:
            for agent in agents:
                agent.kill()
                agent.wait()
    assert outputs == ["rank 0 of 2\n", "rank 1 of 2\n"]
    assert [agent.returncode for agent in agents] == [0, 0]


def test_killed_launcher_takes_python_workers_along(tmp_path):
    work = script(tmp_path, "import os, time\nos.write(1, f'{os.getpid()}\\n'.encode())\ntime.sleep(1000)\n")
    launcher = subprocess.Popen(
        LAUNCHERS["cohort"] + ["--nproc-per-node=2", work], cwd=tmp_path, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "PYTHON_EXEC": str(PYTHON)}, text=True)
    pids = [int(launcher.stdout.readline()) for _ in range(2)]
    watched = [os.pidfd_open(pid) for pid in pids]
    launcher.send_signal(signal.SIGKILL)
    launcher.communicate(timeout=HANG_LIMIT)  # returns when the last holder of the streams is gone
    for fd in watched:
        assert select.select([fd], [], [], HANG_LIMIT)[0], "a worker outlives its launcher"
        os.close(fd)


def test_needs_no_libtorch():
    needed = subprocess.run(["ldd", str(COHORT)], capture_output=True, text=True, check=True).stdout
    libraries = re.findall(r"^\s+(\S+)", needed, re.M)  # not the addresses after them: one may hold a c10
    assert "libc.so.6" in libraries and not [name for name in libraries if "torch" in name or "c10" in name]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))


def test_an_uncaught_exception_of_a_cpp_rank_is_the_report(tmp_path):
    """Without any `@record`: the rank says so itself, leaves it in its error file, and the launcher's report quotes it."""
    words = "the data set has no file train/0007"
    ended = launch("cohort", ["--nproc-per-node=2", f"--log-dir={tmp_path}/logs", "--no-python",
                              BUILD / "bin" / "tests" / "uncaught_rank"], tmp_path)
    assert ended.returncode == 1
    file, = tmp_path.glob("logs/*/attempt_0/1/error.json")
    message = json.loads(file.read_text())["message"]
    assert words in (message if isinstance(message, str) else message["message"])
    assert re.search(rf"^\[rank1\]: .*{re.escape(words)}", ended.stderr, re.M), ended.stderr
    report = ended.stderr[ended.stderr.index("Root Cause (first observed failure):"):]
    assert "  rank      : 1 (local_rank: 1)" in report and words in report, ended.stderr


def test_a_forgotten_init_is_said_without_frames(tmp_path):
    words = "Default process group has not been initialized, please make sure to call init_process_group."
    program = BUILD / "bin" / "tests" / "uncaught_rank"
    ended = launch("cohort", ["--nproc-per-node=1", "--no-python", program, "forgets-init"], tmp_path)
    assert ended.returncode == 1
    assert f"[rank0]: c10::ValueError: {words}\n" in ended.stderr and "frame #" not in ended.stderr, ended.stderr
    assert words in ended.stderr[ended.stderr.index("Root Cause (first observed failure):"):], ended.stderr


@pytest.mark.parametrize("rank, prefix", [("3", r"\[rank3\]: "), ("foo", "")])
def test_a_rank_that_is_no_number_is_no_prefix(rank, prefix, tmp_path):
    program = BUILD / "bin" / "tests" / "uncaught_rank"
    ended = subprocess.run([program, "forgets-init"], env=dict(os.environ, RANK=rank), capture_output=True, text=True, timeout=HANG_LIMIT)
    assert ended.returncode == -signal.SIGABRT
    assert re.match(prefix + r"c10::ValueError: Default process group", ended.stderr), ended.stderr
