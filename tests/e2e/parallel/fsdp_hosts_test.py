"""fully_shard over two hosts, which are network namespaces, with two ranks each: beside PyTorch's FSDP2."""
import os
import subprocess
import sys

import namespaces
import pytest
import torch

from fsdp_blocks_test import PYTHON_RANK, SUMS
from fsdp_test import assert_numbers_alike, numbers_of
from harness import BUILD

pytestmark = pytest.mark.tier_all  # fsdp_blocks_test has the same numbers on one host

PORT = 29431


@pytest.fixture
def hosts(tmp_path):
    with namespaces.cluster(tmp_path) as cluster:
        yield cluster.hosts


# The default backend: groups of one host are one memory, others are Gloo's. "hsdp" shares the parameters within a host, and has
# copies on both; without it they are gathered from both.
@pytest.mark.parametrize("words, own_words", [("hsdp clip", "one_memory"), ("accumulate", "")])
def test_losses_norms_and_parameters_are_pytorchs(hosts, programs, words, own_words):
    command = [BUILD / "bin" / "cohort", "run", "--nnodes=2", "--nproc-per-node=2", f"--rdzv-endpoint=node-a:{PORT}",
               "--rdzv-backend=c10d", "--rdzv-id=fsdp", "--no-python", programs / "fsdp_blocks", "", *words.split(),
               *own_words.split()]
    nodes = [subprocess.Popen(host.command([str(part) for part in command]), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env=dict(os.environ, OMP_NUM_THREADS="1")) for host in hosts]
    try:
        results = [(node, *node.communicate(timeout=300)) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
            node.wait()
    for node, out, err in results:
        assert node.returncode == 0, out + err
    lines = [line.split() for _, out, _ in results for line in out.splitlines()]
    ours = [float(number) for line in lines if {"step", "value"} & set(line) for number in line[-2:] if number != "value"]
    theirs = numbers_of([sys.executable, PYTHON_RANK, words], 4)
    assert_numbers_alike("rank 0", torch.tensor(ours, dtype=torch.float64), theirs, SUMS)
