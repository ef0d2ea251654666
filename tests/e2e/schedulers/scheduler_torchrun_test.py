"""C++ programs built with Cohort under PyTorch's own torchrun: its agent hosts the ranks' store, or rank 0 does."""
import os
import re
import socket

import pytest

import forked_torchrun
from harness import BUILD, free_port

ALL_REDUCE = BUILD / "bin" / "examples" / "all_reduce"


def clean_environment(**variables):
    foreign = ("PET_", "TORCHELASTIC_", "TORCH_", "MASTER_", "OMP_", "SLURM_", "OMPI_", "PMI", "COHORT_", "RANK", "WORLD_SIZE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, "OMP_NUM_THREADS": "1", **variables}


@pytest.fixture
def run(tmp_path):
    """Runs agents of one job; returns their exit codes, the sorted lines of their outputs, and their errors."""

    def run(*agents, **variables):
        env = clean_environment(TMPDIR=str(tmp_path), **variables)  # torchrun leaves its log folder behind
        files = [(tmp_path / f"{number}.out", tmp_path / f"{number}.err") for number in range(len(agents))]
        started = [forked_torchrun.start(["--no-python", *agent], env, tmp_path, *both) for agent, both in zip(agents, files)]
        codes = [forked_torchrun.wait(agent) for agent in started]
        out, err = ("".join(file.read_text() for file in each) for each in zip(*files))
        return codes, sorted(out.splitlines()), err

    return run


# all_reduce, and one more line that says whose store it was.
PROGRAM = ["sh", "-c", f"{ALL_REDUCE} && echo agent hosts: $TORCHELASTIC_USE_AGENT_STORE"]


def expected(world_size, agent_hosts):
    total = world_size * (world_size + 1) // 2
    return sorted([f"rank {rank} of {world_size}: the sum is {total}" for rank in range(world_size)]
                  + [f"agent hosts: {agent_hosts}"] * world_size)


def test_at_the_agents_store(run):
    flags = ["--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]  # static
    codes, lines, err = run([*flags, *PROGRAM])
    assert (codes, lines) == ([0], expected(2, True)), err


def test_at_the_store_of_one_of_two_agents(run):
    flags = ["--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
             "--rdzv-id=job", "--local-addr=127.0.0.1"]
    codes, lines, err = run(*[[*flags, *PROGRAM]] * 2)
    assert (codes, lines) == ([0, 0], expected(4, True)), err


def test_at_rank_zeros_store(run):
    codes, lines, err = run(["--standalone", "--nproc-per-node=2", *PROGRAM], TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    assert (codes, lines) == ([0], expected(2, False)), err


# torchrun 2.13 keeps the store's keys over a restart. Python's ranks then wait for ever; ours say at once why they cannot go on.
def test_a_restart_of_torchrun_meets_the_old_keys(run, tmp_path):
    # Rank 1 fails when rank 0 has printed.
    fails = f"while [ ! -e {tmp_path}/printed ]; do sleep 0.05; done; exit 7"
    program = f"{ALL_REDUCE} || exit 9; if [ $RANK = 1 ]; then {fails}; fi; touch {tmp_path}/printed; exec sleep 100"
    codes, lines, err = run(["--standalone", "--nproc-per-node=2", "--max-restarts=1", "sh", "-c", program])
    assert (codes, lines) == ([1], ["rank 0 of 2: the sum is 3", "rank 1 of 2: the sum is 3"]), err
    process = rf"pid \d+ on {re.escape(socket.gethostname())}"
    assert re.search(rf"\[cohort\] rank [01] \({process}\) arrives too late: this rank was {process}, which has ended", err), err
