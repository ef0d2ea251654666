"""A model whose training state does not fit into what a process may have: four ranks train it together, one process cannot."""
import re

import pytest

RANKS = 4
MIB = 1 << 20
PARAMETERS = 8 * 1024 * 1024 * 4
# Parameters, gradients and AdamW's two averages.
STATE = 4 * PARAMETERS
# Of private memory, beside what a process has before there is a model. The parameters of fully_shard are not private.
LIMIT = STATE // 2
assert LIMIT + PARAMETERS < STATE


def start(job, programs, strategy, num_bytes):
    ranks = 1 if strategy == "alone" else RANKS
    agent = job.start(f"--nproc-per-node={ranks}", "--no-python", programs / "fsdp_memory", strategy, num_bytes // MIB)
    code = agent.finish()
    return code, agent.output, agent.errors


def numbers_of(what, text, count):
    numbers = [float(number) for number in re.findall(rf"{what} (\S+)$", text, re.M)]
    assert len(numbers) == count, text
    return numbers


def test_four_ranks_train_what_one_process_has_no_memory_for(job, programs):
    code, output, errors = start(job, programs, "alone", 0)
    assert code == 0, output + errors
    expected = numbers_of("loss", output, 3)
    assert expected[2] < expected[0]
    assert 1024 * sum(numbers_of("held", output, 1)) > 0.95 * STATE

    code, output, errors = start(job, programs, "fully_shard", LIMIT)
    assert code == 0, output + errors
    assert numbers_of("loss", output, 3) == pytest.approx(expected, rel=1e-5)
    # All ranks together, shared memory included: the state once, copies of gradients, and what allocators keep.
    assert 1024 * sum(numbers_of("held", output, RANKS)) < STATE + RANKS * (PARAMETERS + 24 * MIB)

    code, output, errors = start(job, programs, "alone", LIMIT)
    assert code != 0
    assert "can't allocate memory: you tried to allocate 4194304 bytes" in errors
