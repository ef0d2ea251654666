"""Ctrl-C during a blocked operation: KeyboardInterrupt at once, and a group that says why it is of no more use.

What an interrupt does that the program does not catch: python_exit_test.py.
"""
import os
import re
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

def wait_late(work):
    time.sleep(0.1)  # the progress thread runs it by now
    work.wait()


BLOCKED = {
    "all_reduce": lambda tensor: dist.all_reduce(tensor),
    "wait": lambda tensor: dist.all_reduce(tensor, async_op=True).wait(),
    "late_wait": lambda tensor: wait_late(dist.all_reduce(tensor, async_op=True)),
    "behind_another": lambda tensor: (dist.barrier(async_op=True).get_future(), time.sleep(0.1), dist.all_reduce(tensor)),
    "barrier": lambda tensor: dist.barrier(),
    "recv": lambda tensor: dist.recv(tensor, 1),
    "all_gather_object": lambda tensor: dist.all_gather_object([None, None], {}),
}
REASON = (r"  caused by: (the group has failed before and takes no more operations\n"
          r"  caused by: interrupted by a signal while it waited\n"
          r"  hint: destroy_process_group\(\) and start again on every rank|the group was aborted on this rank)")
LEAVE_THE_GROUP_WELL = {"recv"}  # nobody else takes part


def interrupted_in(name):
    """Rank 1 interrupts rank 0, which waits for it; returns what rank 0's next operation says."""
    def rank_main(rank, size):
        pids = [None, None]
        dist.all_gather_object(pids, os.getpid())
        store = dist.distributed_c10d._get_default_store()
        if rank == 1:
            store.wait(["begins"])
            time.sleep(1)
            os.kill(pids[0], signal.SIGINT)
            store.wait(["over"])
            return ""
        with pytest.raises(KeyboardInterrupt):
            store.set("begins", "yes")
            BLOCKED[name](torch.ones(4))
        text = "" if name in LEAVE_THE_GROUP_WELL else next_error()
        store.set("over", "yes")
        return text
    return rank_main


def next_error():
    with pytest.raises(dist.DistBackendError) as error:
        dist.all_reduce(torch.ones(1))
    return str(error.value)


@pytest.mark.parametrize("name", BLOCKED)
def test_interrupt_of(name):
    text = run_ranks(interrupted_in(name), 2)[0]
    if name not in LEAVE_THE_GROUP_WELL:
        assert re.fullmatch(r"\[cohort\] all_reduce #\d+ on group \"default_pg\" failed\n.*\n" + REASON, text.rstrip()), text


def handler_that_returns(rank, size):
    """A handler that raises nothing lets the operation go on."""
    seen = []
    signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    pids = [None, None]
    dist.all_gather_object(pids, os.getpid())
    total = torch.ones(1)
    if rank == 1:
        time.sleep(0.1)
        os.kill(pids[0], signal.SIGINT)
        time.sleep(0.1)
    dist.all_reduce(total)
    return total.item(), len(seen)


def test_handler_that_returns_does_not_stop_the_operation():
    assert run_ranks(handler_that_returns, 2) == [(2, 1), (2, 0)]


def other_thread_is_blocked(rank, size):
    """Signals belong to the main thread: the operation of another one goes on."""
    pids = [None, None]
    dist.all_gather_object(pids, os.getpid())
    total = torch.ones(1)
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["begins"])
        time.sleep(0.2)
        os.kill(pids[0], signal.SIGINT)
        time.sleep(0.1)
        dist.all_reduce(total)
        return total.item()
    thread = threading.Thread(target=lambda: dist.all_reduce(total))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        store.set("begins", "yes")
        while True:
            time.sleep(0.01)
    thread.join()
    return total.item()


def test_interrupt_leaves_other_threads_alone():
    assert run_ranks(other_thread_is_blocked, 2) == [2, 2]
