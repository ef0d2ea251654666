"""fully_shard where parameters are gathered, beside PyTorch's FSDP2: a group per block, and each of the options."""
import functools
import pathlib
import sys

import pytest

from fsdp_test import numbers_of

PYTHON_RANK = pathlib.Path(__file__).with_name("fsdp_blocks_python_rank.py")


@functools.cache
def wanted(words, size):
    return numbers_of([sys.executable, PYTHON_RANK, *words.split()], size)


# In bfloat16 a sum in another order may be rounded to the next number, which AdamW makes a step of.
CASES = [
    ("gloo", 1, "", "", 2e-6),
    ("gloo", 2, "clip keep", "", 2e-6),
    ("gloo", 3, "accumulate let_go", "stay", 2e-6),
    ("gloo", 4, "pairs twice", "", 2e-6),
    ("gloo", 4, "hsdp clip", "prefetch", 2e-6),
    ("gloo", 4, "hsdp reduce_only", "", 2e-6),
    ("gloo", 2, "columns divide sums", "separate", 2e-6),
    ("gloo", 2, "hook", "", 2e-6),
    ("gloo", 2, "bf16", "", 2e-2),
    ("gloo", 2, "bf16 float32_sums float32_output accumulate", "", 2e-2),
    ("shm", 2, "clip keep", "", 2e-6),
    ("shm", 3, "accumulate let_go", "not_last", 2e-6),
    ("shm", 4, "hsdp clip", "", 2e-6),
    ("shm", 4, "hsdp clip", "one_memory", 2e-6),
    ("shm", 4, "hsdp reduce_only", "one_memory", 2e-6),
    ("shm", 2, "replicate", "", 2e-6),
    ("shm", 2, "replicate", "one_memory", 2e-6),
    ("shm", 2, "bf16", "one_memory", 2e-2),
]


@pytest.mark.parametrize("backend, size, words, own_words, tolerance", CASES)
def test_losses_norms_and_parameters_are_pytorchs(programs, backend, size, words, own_words, tolerance):
    theirs = wanted(words, size)
    ours = numbers_of([programs / "fsdp_blocks", backend, *words.split(), *own_words.split()], size)
    assert len(theirs) == len(ours) == 12 + 4 * 6 + 6 + 3 * (6 * 10 + 10 + 10 * 6) + 6 * 3 + 3
    assert theirs[0] != theirs[11]
    for i, (one, other) in enumerate(zip(ours, theirs)):
        assert one == pytest.approx(other, rel=tolerance, abs=max(1e-6, tolerance / 4)), i
