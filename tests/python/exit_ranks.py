"""exit_ranks.py SIZE REPEATS CASE...: ranks whose interpreters end in the ordinary way, in every state of their groups.

Prints a JSON line per rank: [case, rank, exit code or minus the signal, what it wrote to standard error]. The ranks are forked,
so that each costs milliseconds, and run to the end of this file: what is compared is the end of a real interpreter.
"""
import atexit
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torchcohort  # noqa: F401

KEPT = []
SIGN = []  # a file of this job
HANG_LIMIT = 300


def begin(rank, size, store):
    torch.set_num_threads(1)
    dist.init_process_group("cohort", init_method=f"file://{store}", rank=rank, world_size=size)
    total = torch.ones(4)
    dist.all_reduce(total)
    assert total[0] == size


def destroyed(rank, size):
    dist.destroy_process_group()


def not_destroyed(rank, size):
    pass


def group_is_kept(rank, size):
    KEPT.append(dist.new_group())
    KEPT.append(KEPT)
    dist.barrier(group=KEPT[0])
    dist.destroy_process_group()


def works_not_waited_for(rank, size):
    for _ in range(20):
        KEPT.append(dist.all_reduce(torch.ones(1000), async_op=True))


def works_dropped(rank, size):
    for _ in range(20):
        dist.all_reduce(torch.ones(1000), async_op=True)


def callbacks_not_waited_for(rank, size):
    for _ in range(20):
        future = dist.all_reduce(torch.ones(1000), async_op=True).get_future()
        KEPT.append(future.then(lambda future: future.value()[0] * 2))


def leave_after_rank_0_has_begun_to(rank):
    """What has failed before the end is not lost by the end."""
    if rank == 0:
        atexit.register(lambda: open(SIGN[0], "w").close())
    while rank == 1 and not os.path.exists(SIGN[0]):
        time.sleep(0.001)


def work_that_never_ends(rank, size):
    if rank == 0:
        KEPT.append(dist.all_reduce(torch.ones(1000), async_op=True))
        dist.isend(torch.ones(1000), 1)
    leave_after_rank_0_has_begun_to(rank)


def callback_that_never_runs(rank, size):
    if rank == 0:
        KEPT.append(dist.all_reduce(torch.ones(1000), async_op=True).get_future().then(lambda future: torch.ones(1)))
    leave_after_rank_0_has_begun_to(rank)


def started_and_left(rank, size):
    """Rank 1 starts operations and ends, by itself or by destroying its group; rank 0 calls the same ones later."""
    tensors = [torch.full((5,), float(rank + index)) for index in range(4)]
    work = None
    if rank == 0:
        time.sleep(0.3)
    dist.broadcast(tensors[0], 1, async_op=rank == 1)
    work = dist.all_reduce(tensors[1], async_op=rank == 1)
    if rank == 1:
        dist.isend(torch.arange(200_000.0), 0)
        work.get_future().then(lambda future: KEPT.append(dist.all_reduce(tensors[2], async_op=True)))
    else:
        received = torch.zeros(200_000)
        dist.recv(received, 1)
        dist.all_reduce(tensors[2])
        assert tensors[0].tolist() == [1.0] * 5 and tensors[1].tolist() == [3.0] * 5
        assert tensors[2].tolist() == [5.0] * 5 and received[-1] == 199_999
        dist.destroy_process_group()


def exception(rank, size):
    KEPT.append(dist.all_reduce(torch.ones(1000), async_op=True))
    raise RuntimeError("mine")


def exception_of_one_rank(rank, size):
    if rank == 1:
        raise RuntimeError("mine")
    time.sleep(0.05)


def exit_code(rank, size):
    sys.exit(5)


def exit_in_a_thread(rank, size):
    thread = threading.Thread(target=lambda: (dist.all_reduce(torch.ones(3)), sys.exit(3)))
    thread.start()
    thread.join()


def pid_of_rank_0():
    """On all ranks."""
    pid = torch.tensor([os.getpid()])
    dist.broadcast(pid, 0)
    return pid.item()


def wait_for_the_end_of(pid):
    select.select([os.pidfd_open(pid)], [], [])


def daemon_thread_in_a_collective(rank, size):
    """Rank 0's thread waits for a peer that never calls, while its interpreter ends."""
    pid = pid_of_rank_0()
    if rank == 0:
        threading.Thread(target=lambda: dist.all_reduce(torch.ones(3)), daemon=True).start()
        time.sleep(0.05)
    else:
        wait_for_the_end_of(pid)


def daemon_thread_among_collectives(rank, size):
    group = dist.new_group()

    def forever():
        while True:
            dist.all_reduce(torch.ones(3), group=group)

    threading.Thread(target=forever, daemon=True).start()
    time.sleep(0.02)


def failed_group(rank, size):
    try:
        dist.all_reduce(torch.ones(3)) if rank else dist.barrier()
    except RuntimeError:
        pass
    else:
        raise AssertionError("different calls did not fail")


def interrupt_rank_0(rank):
    pid = pid_of_rank_0()
    if rank == 1:
        time.sleep(0.1)
        os.kill(pid, signal.SIGINT)
        wait_for_the_end_of(pid)
    else:
        dist.barrier()


def interrupt(rank, size):
    interrupt_rank_0(rank)


def interrupt_with_a_handler(rank, size):
    signal.signal(signal.SIGINT, lambda *_: sys.exit(7))
    interrupt_rank_0(rank)


def fork_rank(case, rank, size, store):
    """In the child: the case, and then back to the end of the file. In the parent: (process, where its output goes)."""
    output = tempfile.TemporaryFile()
    child = os.fork()
    if child:
        return child, output
    os.dup2(output.fileno(), 2)
    signal.alarm(HANG_LIMIT)
    SIGN.append(store + ".sign")
    begin(rank, size, store)
    globals()[case](rank, size)
    return None


def run_job(case, size):
    folder = tempfile.mkdtemp()
    started = []
    for rank in range(size):
        started.append(fork_rank(case, rank, size, folder + "/store"))
        if started[-1] is None:
            return False
    for rank, (child, output) in enumerate(started):
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        print(json.dumps([case, rank, status, output.read().decode()]), flush=True)
    shutil.rmtree(folder)
    return True


def main(size, repeats, cases):
    for case in cases * repeats:
        if not run_job(case, size):
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
