"""C++ programs built with Cohort under PyTorch's own torchrun: its agent hosts the ranks' store, or rank 0 does."""
import os
import re
import socket
import subprocess
import sys

import pytest

from conftest import BUILD, free_port

ALL_REDUCE = BUILD / "bin" / "examples" / "all_reduce"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--no-python"]
HANG_LIMIT = 180


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # torchrun leaves its log folder behind


def start(*arguments, **variables):
    foreign = ("PET_", "TORCHELASTIC_", "MASTER_", "OMP_", "SLURM_", "OMPI_", "PMI")
    env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return subprocess.Popen([*TORCHRUN, *map(str, arguments)], env=dict(env, OMP_NUM_THREADS="1", **variables),
                            text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def outcomes(agents):
    """Exit codes, and the lines of all agents' outputs in order; then their errors."""
    try:
        ended = [agent.communicate(timeout=HANG_LIMIT) for agent in agents]
    finally:
        for agent in agents:
            if agent.poll() is None:
                agent.kill()
                agent.communicate()
    lines = sorted(line for out, _ in ended for line in out.splitlines())
    return [agent.returncode for agent in agents], lines, "".join(err for _, err in ended)


# all_reduce, and one more line that says whose store it was.
PROGRAM = ["sh", "-c", f"{ALL_REDUCE} && echo agent hosts: $TORCHELASTIC_USE_AGENT_STORE"]


def expected(world_size, agent_hosts):
    total = world_size * (world_size + 1) // 2
    return sorted([f"rank {rank} of {world_size}: the sum is {total}" for rank in range(world_size)]
                  + [f"agent hosts: {agent_hosts}"] * world_size)


def test_at_the_agents_store():
    flags = ["--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]  # static
    codes, lines, err = outcomes([start(*flags, *PROGRAM)])
    assert (codes, lines) == ([0], expected(2, True)), err


def test_at_the_store_of_one_of_two_agents():
    flags = ["--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
             "--rdzv-id=job", "--local-addr=127.0.0.1"]
    codes, lines, err = outcomes([start(*flags, *PROGRAM) for _ in range(2)])
    assert (codes, lines) == ([0, 0], expected(4, True)), err


def test_at_rank_zeros_store():
    agent = start("--standalone", "--nproc-per-node=2", *PROGRAM, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    codes, lines, err = outcomes([agent])
    assert (codes, lines) == ([0], expected(2, False)), err


# torchrun 2.13 keeps the store's keys over a restart. Python's ranks then wait for ever; ours say at once why they cannot go on.
def test_a_restart_of_torchrun_meets_the_old_keys(tmp_path):
    program = f'{ALL_REDUCE} || exit 9; [ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && [ "$RANK" = 1 ] && exit 7; exec sleep 100'
    agent = start("--standalone", "--nproc-per-node=2", "--max-restarts=1", f"--log-dir={tmp_path}", "sh", "-c", program)
    codes, lines, err = outcomes([agent])
    assert (codes, lines) == ([1], ["rank 0 of 2: the sum is 3", "rank 1 of 2: the sum is 3"])
    process = rf"pid \d+ on {re.escape(socket.gethostname())}"
    assert re.search(rf"\[cohort\] rank [01] \({process}\) comes too late: this rank was {process}, which has ended", err)
