"""The interpreter ends cleanly in every state of its groups: the exit code is right, nothing hangs, nothing is printed."""
import collections
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest
from ranks import BUILD

pytestmark = pytest.mark.tier_all  # it waits for many ways to end

SCRIPT = pathlib.Path(__file__).with_name("exit_ranks.py")
# More for a search: COHORT_TEST_EXITS=500.
REPEATS = int(os.environ.get("COHORT_TEST_EXITS", "1"))
QUIET = ["destroyed", "not_destroyed", "group_is_kept", "works_not_waited_for", "callbacks_not_waited_for",
         "exit_in_a_thread", "failed_group"]
LOSE_OPERATIONS = {"work_that_never_ends": 2, "callback_that_never_runs": 1}
DAEMONS = ["daemon_thread_in_a_collective", "daemon_thread_among_collectives"]
OTHERS = ["works_dropped", "started_and_left", "exit_code", "exception", "exception_of_one_rank", "interrupt", "interrupt_with_a_handler"]


@pytest.fixture(scope="module")
def ends():
    """{case: [(rank, exit code, standard error)]}, of one process that forks all ranks."""
    command = [sys.executable, SCRIPT, "2", str(REPEATS), *QUIET, *LOSE_OPERATIONS, *DAEMONS, *OTHERS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300 + 60 * REPEATS,
                          env=dict(os.environ, PYTHONPATH=str(BUILD / "python"), COHORT_TRACE_DUMP="never", COHORT_TEST_RARE_GC="0"))
    assert done.returncode == 0, done.stderr
    found = collections.defaultdict(list)
    for line in done.stdout.splitlines():
        case, *end = json.loads(line)
        found[case].append(end)
    assert {len(ends) for ends in found.values()} == {2 * REPEATS} and len(found) == len(command) - 4
    return found


@pytest.mark.parametrize("case", QUIET)
def test_ends_without_a_word(ends, case):
    assert [end for end in ends[case] if end[1:] != [0, ""]] == []


@pytest.mark.parametrize("case", LOSE_OPERATIONS)
def test_lost_operations_are_told(ends, case):
    text = (f"[cohort] warning: exiting with {LOSE_OPERATIONS[case]} operation(s) that nobody waited for and that could not be completed. "
            "Call wait() on every Work and destroy_process_group() before the program ends.\n")
    # An operation that has failed before the end, because the other rank was faster, is not lost by the end.
    assert [end for end in ends[case] if end[1:] != [0, text if end[0] == 0 else ""] and end[1:] != [0, ""]] == []
    assert case == "callback_that_never_runs" or any(end[2] for end in ends[case])


def unawaited(names):
    return (f"[cohort] warning: nobody has called wait() on the Work of {names}: their tensors may have been read before the results were "
            "there. Call wait() on every Work before you use its tensors.\n")


def test_dropped_works_are_told(ends):
    names = ", ".join(f'all_reduce #{number} on group "default_pg"' for number in range(2, 6))
    assert {tuple(end) for end in ends["works_dropped"]} == {(0, 0, unawaited(names + ", 16 more")), (1, 0, "")}


# Rank 1 leaves a message that it has not waited for, and which has come all the same.
def test_started_operations_are_completed(ends):
    assert {tuple(end) for end in ends["started_and_left"]} == {(0, 0, ""), (1, 0, unawaited('send #1 on group "default_pg"'))}


@pytest.mark.parametrize("case", DAEMONS)
def test_daemon_thread_is_told_that_its_group_has_ended(ends, case):
    for rank, code, errors in ends[case]:
        # The thread's own report, which the end of the interpreter may cut anywhere.
        assert code == 0 and (errors == "" or errors.startswith("Exception in thread Thread-1 (")), errors
        assert set(re.findall(r"^\S*Error\b", errors, re.M)) <= {"torch.distributed.DistBackendError"}, errors


def test_exit_code_is_kept(ends):
    assert [end for end in ends["exit_code"] if end[1:] != [5, ""]] == []


def test_exception_is_what_python_says(ends):
    for rank, code, errors in ends["exception"]:
        lines = errors.splitlines()
        assert (code, lines[0], lines[-1]) == (1, f"[rank{rank}]: Traceback (most recent call last):", f"[rank{rank}]: RuntimeError: mine")


def test_exception_of_one_rank(ends):
    for rank, code, errors in ends["exception_of_one_rank"]:
        assert code == rank
        assert errors == "" if rank == 0 else errors.endswith("\n[rank1]: RuntimeError: mine\n")


def test_interrupt_ends_the_process_as_python_does(ends):
    for rank, code, errors in ends["interrupt"]:
        if rank == 0:
            assert (code, errors.splitlines()[-1]) == (-signal.SIGINT, "[rank0]: KeyboardInterrupt")


def test_exit_from_the_handler_of_a_signal(ends):
    assert {(code, errors) for rank, code, errors in ends["interrupt_with_a_handler"] if rank == 0} == {(7, "")}
