"""Programs under the mpirun of OpenMPI and of MPICH, started by the file that docs/guide/schedulers.md shows."""
import os
import shlex
import shutil
import subprocess
import tempfile

import pytest

import namespaces
from harness import BUILD, SOURCE
from process_tree import kill_tree

FILE = SOURCE / "examples" / "schedulers" / "mpirun.sh"
ALL_REDUCE = BUILD / "bin" / "examples" / "all_reduce"
MPIRUNS = ["mpirun.openmpi", "mpirun.mpich"]
SUM_OF_TWO = ["rank 0 of 2: the sum is 3", "rank 1 of 2: the sum is 3"]
FOREIGN = ("SLURM_", "PET_", "TORCHELASTIC_", "MASTER_", "OMP_", "OMPI_", "PMI", "RANK", "WORLD_SIZE", "LOCAL_")


@pytest.fixture(params=MPIRUNS)
def mpirun(request):
    if shutil.which(request.param) is None:
        reason = f"{request.param} is not installed (apt-get install openmpi-bin mpich)"
        print(reason)
        pytest.skip(reason)
    return request.param


def start(mpirun, *command, **variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    # Two mpirun that make the folder of their user at the same moment: one of them ends (OpenMPI 4.1.4), "File exists".
    folder = tempfile.TemporaryDirectory(prefix="ompi-")
    # OpenMPI refuses root, and more ranks than cores, unless told.
    env = dict(kept, MPIRUN=mpirun, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_orte_tmpdir_base=folder.name, **variables)
    process = subprocess.Popen([str(word) for word in command], env=env, text=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.folder = folder
    return process


def outcome(process):
    """(exit code, sorted lines of stdout, stderr)"""
    try:
        out, err = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            kill_tree(process.pid)
            process.communicate()
        process.folder.cleanup()
    return process.returncode, sorted(out.splitlines()), err


def test_a_rank_per_process(mpirun):
    code, lines, err = outcome(start(mpirun, FILE, ALL_REDUCE))
    assert (code, lines) == (0, SUM_OF_TWO), err


@pytest.mark.tier_all
def test_two_jobs_on_a_host_do_not_meet(mpirun, tmp_path):
    # A rank goes on when the four of both jobs have come this far, or after a minute: then the other job says what it lacks.
    here = f"[ $(ls {tmp_path} | wc -l) -lt 4 ]"
    wait = f"touch {tmp_path}/$$; for i in $(seq 600); do {here} && sleep 0.1 || break; done; exec {ALL_REDUCE}"
    jobs = [start(mpirun, FILE, "sh", "-c", wait) for _ in range(2)]
    ended = [outcome(job) for job in jobs]
    assert [result[:2] for result in ended] == [(0, SUM_OF_TWO)] * 2, ended


def test_set_variables_win(mpirun):
    swap = 'RANK=$((1 - ${OMPI_COMM_WORLD_RANK:-$PMI_RANK})) exec "$0"'
    code, lines, err = outcome(start(mpirun, FILE, "sh", "-c", swap, BUILD / "bin" / "examples" / "ranks_by_hand"))
    assert code != 0 and lines == []
    assert err.count("environment variable WORLD_SIZE expected, but not set\n  hint: this process is rank ") == 2, err


def test_agents_under_mpirun_are_nodes(mpirun):
    code, lines, err = outcome(start(mpirun, FILE, BUILD / "bin" / "cohort", "run", "--nproc-per-node=1", ALL_REDUCE,
                                     COHORT_LOG_LEVEL="info"))
    assert (code, lines) == (0, SUM_OF_TWO), err
    for rank in range(2):
        assert f"rank {rank} of 2 of " in err and f"'s mpirun: --nnodes=2 --node-rank={rank} --master-port=" in err


@pytest.fixture
def cluster(tmp_path):
    with namespaces.cluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def two_hosts(cluster, mpirun, tmp_path):
    """mpirun on node-a with a rank on each host; what it takes for ssh enters the other's namespace."""
    ssh = tmp_path / "ssh"
    cases = "\n".join(f"{host.name}) exec {shlex.join(host.command(['sh', '-c']))} \"$*\" ;;" for host in cluster.hosts)
    ssh.write_text(f'#!/bin/sh\nwhile [ "${{1#-}}" != "$1" ]; do shift; done\nhost=$1; shift\ncase $host in\n{cases}\nesac\n')
    ssh.chmod(0o755)
    if mpirun == "mpirun.openmpi":
        hosts = ["--host", "node-a:1,node-b:1", "--mca", "plm_rsh_agent", ssh]
        variable = lambda name, value: ["-x", f"{name}={value}"]  # noqa: E731
    else:
        hosts = ["-hosts", "node-a:1,node-b:1", "-launcher", "ssh", "-launcher-exec", ssh]
        variable = lambda name, value: ["-genv", name, value]  # noqa: E731

    def run(program, **variables):
        flags = [word for name, value in variables.items() for word in variable(name, value)]
        return outcome(start(mpirun, *cluster.hosts[0].command([mpirun, *hosts, "-n", "2", *flags, program])))

    return run


def test_ranks_on_two_hosts(two_hosts, mpirun):
    port = {} if mpirun == "mpirun.openmpi" else {"MASTER_PORT": "29500"}
    code, lines, err = two_hosts(ALL_REDUCE, MASTER_ADDR="node-a", **port)
    assert (code, lines) == (0, SUM_OF_TWO), err


@pytest.mark.tier_all
def test_ranks_on_two_hosts_must_be_told_where_rank_0_is(two_hosts, mpirun):
    code, lines, err = two_hosts(BUILD / "bin" / "examples" / "ranks_by_hand")
    assert code != 0 and lines == []
    name, flag = {"mpirun.openmpi": ("OpenMPI", "-x MASTER_ADDR=<host of rank 0>"),
                  "mpirun.mpich": ("MPICH", "-genv MASTER_ADDR <host of rank 0>")}[mpirun]
    assert ("Error initializing torch.distributed using env:// rendezvous: environment variable MASTER_ADDR expected, but "
            f"not set\n  hint: {name} does not say on which host rank 0 is: mpirun {flag}\n") in err
