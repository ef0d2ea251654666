"""Ctrl-C during a blocked operation: KeyboardInterrupt at once, and a group that says why it is of no more use.

What an interrupt does that the program does not catch: python_exit_test.py.
"""
import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

BLOCKED = {
    "all_reduce": lambda tensor: dist.all_reduce(tensor),
    "wait": lambda tensor: dist.all_reduce(tensor, async_op=True).wait(),
    "future": lambda tensor: dist.all_reduce(tensor, async_op=True).get_future().wait(),
    "barrier": lambda tensor: dist.barrier(),
    "recv": lambda tensor: dist.recv(tensor, 1),
    "all_gather_object": lambda tensor: dist.all_gather_object([None, None], {}),
}
IS_INTERRUPTIBLE = sorted(BLOCKED.keys() - {"future"})


def with_interruption(rank, blocked):
    """Rank 1 interrupts rank 0 in `blocked`, which waits for rank 1; returns the seconds from interruption to its end."""
    pids = [None, None]
    dist.all_gather_object(pids, os.getpid())
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        time.sleep(0.2)
        os.kill(pids[0], signal.SIGINT)
        store.set("interrupted", "yes")
        store.wait(["over"])
        return None
    with pytest.raises(KeyboardInterrupt):
        blocked(torch.ones(4))
    store.wait(["interrupted"])
    store.set("over", "yes")
    return time.monotonic()


def after_an_interrupt(name):
    def rank_main(rank, size):
        with_interruption(rank, BLOCKED[name])
        if rank == 1 or name == "recv":  # nobody else takes part in a receive, so the group stays well
            return None
        with pytest.raises(dist.DistBackendError) as error:
            dist.all_reduce(torch.ones(1))
        return str(error.value)
    return rank_main


@pytest.mark.parametrize("name", IS_INTERRUPTIBLE)
def test_interrupt_of(name):
    text = run_ranks(after_an_interrupt(name), 2, limit=20)[0]
    if name != "recv":
        lines = text.splitlines()
        assert lines[0].startswith("[cohort] all_reduce #") and lines[2:4] == [], text


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
    if rank == 1:
        time.sleep(0.2)
        os.kill(pids[0], signal.SIGINT)
        time.sleep(0.1)
        dist.all_reduce(total)
        return total.item()
    thread = threading.Thread(target=lambda: dist.all_reduce(total))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            time.sleep(0.01)
    thread.join()
    return total.item()


def test_interrupt_leaves_other_threads_alone():
    assert run_ranks(other_thread_is_blocked, 2) == [2, 2]
