"""fully_shard where parameters are gathered, beside PyTorch's FSDP2: a group per block, and each of the options."""
import functools
import pathlib
import sys

import pytest

from fsdp_test import assert_numbers_alike, numbers_in, numbers_of, output_of

PYTHON_RANK = pathlib.Path(__file__).with_name("fsdp_blocks_python_rank.py")
STEPS = 12
# Of the three blocks and the layers around them, forward and backward, in each step.
SUMS = STEPS * 2 * (4 + 3 * (6 + 10) + 6)


# Backend, ranks, words for both, words for ours alone.
CASES = [
    ("gloo", 1, "", ""),
    ("gloo", 2, "clip keep", ""),
    ("gloo", 3, "accumulate let_go", "stay"),
    ("gloo", 4, "pairs twice", ""),
    ("gloo", 4, "pairs twice", "dims"),
    ("gloo", 4, "hsdp clip", "dims"),
    ("gloo", 4, "hsdp clip", "prefetch"),
    ("gloo", 4, "hsdp reduce_only", ""),
    ("gloo", 2, "columns divide sums", "separate"),
    ("gloo", 2, "hook", ""),
    ("gloo", 2, "list clip", ""),
    ("gloo", 2, "list bf16 accumulate keep", ""),
    ("gloo", 4, "experts", ""),
    ("gloo", 4, "copied_experts accumulate", ""),
    ("gloo", 2, "bf16", ""),
    ("gloo", 2, "bf16 float32_sums float32_output accumulate", ""),
    ("shm", 2, "clip keep", ""),
    ("shm", 3, "accumulate let_go", "not_last"),
    ("shm", 4, "hsdp clip", ""),
    ("shm", 4, "hsdp clip", "one_memory"),
    ("shm", 4, "hsdp reduce_only", "one_memory"),
    ("shm", 2, "replicate", ""),
    ("shm", 2, "list clip", "one_memory"),
    ("shm", 3, "list accumulate let_go", "symm_mem"),
    ("shm", 2, "columns divide sums", "symm_mem"),
    ("shm", 4, "experts", "symm_mem"),
    ("shm", 4, "experts", "one_memory"),
    ("shm", 4, "copied_experts accumulate", "one_memory"),
    ("shm", 2, "replicate", "one_memory"),
    ("shm", 2, "replicate", "one_memory dims"),
    ("shm", 4, "hsdp clip", "one_memory dims"),
    ("shm", 2, "bf16", "one_memory"),
    ("shm", 2, "bf16 float32_sums float32_output accumulate", "one_memory"),
]


def numbers_of_python(each, size):
    """{words: numbers}, by one start of PyTorch."""
    outputs = output_of([sys.executable, PYTHON_RANK, *each], size).split("words ")[1:]
    assert [output.splitlines()[0] for output in outputs] == each
    return {words: numbers_in(output.partition("\n")[2]) for words, output in zip(each, outputs)}


@pytest.fixture(scope="module")
def oracle(golden):
    """Of all cases of so many ranks."""
    def require(what, got, wanted):
        assert_numbers_alike(what, got, wanted, SUMS)

    @functools.cache
    def of(size):
        each = sorted({words for _, ranks, words, _ in CASES if ranks == size})
        return golden(__file__, lambda: [numbers_of_python(each, size)], require, [PYTHON_RANK], each, part=f"{size}_ranks")
    return of


@pytest.mark.tier_all_where(backend=["gloo"], size=[3])
@pytest.mark.parametrize("backend, size, words, own_words", CASES)
def test_losses_norms_and_parameters_are_pytorchs(programs, oracle, backend, size, words, own_words):
    ours = numbers_of([programs / "fsdp_blocks", backend, *words.split(), *own_words.split()], size)
    assert len(ours) == STEPS * 2 + 4 * 6 + 6 + 3 * (6 * 10 + 10 + 10 * 6) + 6 * 3 + 3
    assert ours[0] != ours[2 * (STEPS - 1)]
    oracle(size).only(words).compare([{words: ours}])
