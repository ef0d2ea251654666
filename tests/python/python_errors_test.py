"""Failures of collectives, as Python programs see them: PyTorch's own classes, full texts."""
import datetime
import os
import re
import signal
import time

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks, run_scripts

SHORT = datetime.timedelta(seconds=1.5)
PROCESS = r"rank {} \(pid \d+ on \S+\)"


def error_of(function):
    """(class name, text) of what `function` raised."""
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing", ""


def head(operation, rank, size, what=", 16 B float32"):
    return (rf'\[cohort\] {operation} on group "default_pg" failed\n'
            rf"  rank {rank} of {size} on \S+, backend shm{what}\n")


def assert_error(error, kind, pattern):
    assert error[0] == kind, error
    assert re.fullmatch(pattern, error[1].rstrip("\n")), error[1]


def differing_calls(rank, size):
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    return error_of(lambda: dist.all_reduce(tensor) if rank == 0 else dist.broadcast(tensor, 0)), error_of(dist.barrier)


@pytest.mark.parametrize("backend", ["cohort", "shm"])
def test_different_calls_message(backend):
    table = (r"  caused by: rank 0 calls all_reduce\(SUM\) of 4 float32\n"
             r"  caused by: rank 1 calls broadcast from rank 0 of 4 float32\n"
             r"  hint: make every rank call the same operation with the same shapes, dtypes and roots, in the same order")
    for rank, (first, second) in enumerate(run_ranks(differing_calls, 2, backend=backend)):
        operation = ["all_reduce #2", "broadcast #2"][rank]
        assert_error(first, "DistBackendError", head(operation, rank, 2) + table)
        assert_error(second, "DistBackendError", head("barrier #3", rank, 2, "") +
                     "  caused by: the group has failed before and takes no more operations\n" + table)


def dead_peer(rank, size):
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    error = error_of(lambda: dist.all_reduce(torch.ones(4)))
    dist.destroy_process_group()
    return error


def test_dead_peer_message():
    results = run_ranks(dead_peer, 3, may_die=[1])
    for rank in (0, 2):
        assert_error(results[rank], "DistBackendError", head("all_reduce #2", rank, 3) + "  caused by: " +
                     PROCESS.format(1) + r" (was killed by signal 9 \(SIGKILL\)|has ended)\n"
                     "  hint: look at the output of rank 1 for the reason")


def told():
    """The path of a file that a rank writes when it has its error."""
    return os.environ["COHORT_TEST_STORE"].removeprefix("file://") + ".told"


def late_peer(rank, size):
    dist.all_reduce(torch.ones(4))
    if rank == 1:
        while not os.path.exists(told()):
            pass
        return None
    error = error_of(lambda: dist.all_reduce(torch.ones(4)))
    open(told(), "w").close()
    return error


@pytest.mark.tier_all
def test_time_out_message():
    error = run_ranks(late_peer, 2, timeout=datetime.timedelta(seconds=6), environment={"COHORT_TRACE_DUMP": "never"})[0]
    assert_error(error, "DistBackendError", head("all_reduce #2", 0, 2) + "  caused by: " + PROCESS.format(1) +
                 r" has not arrived within 6\.0 s: it is computing\n"
                 r"  hint: the ranks run at different speeds, but none is lost; raise the timeout of init_process_group "
                 r"\(of new_group for a subgroup\), now 6\.0 s")


def stopped_in_backward(rank, size):
    """Rank 1 stops itself in the third backward pass; the others say why theirs did not end, then rank 0 ends it."""
    pids = [torch.zeros(1, dtype=torch.long) for _ in range(size)]
    dist.all_gather(pids, torch.tensor([os.getpid()]))
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))

    def train(stops):
        output = ddp(torch.ones(2, 4))
        if stops:
            output.register_hook(lambda _: os.kill(os.getpid(), signal.SIGSTOP))
        output.sum().backward()

    train(stops=False)
    train(stops=False)
    error = error_of(lambda: train(stops=rank == 1))
    if rank == 2:
        open(told(), "w").close()
    while rank == 0 and not os.path.exists(told()):
        time.sleep(0.01)
    if rank == 0:
        os.kill(pids[1].item(), signal.SIGKILL)
    return error


@pytest.mark.tier_all
def test_stopped_rank_under_ddp_message():
    import torch._dynamo  # noqa: F401  as DDP does, once here instead of in each rank
    results = run_ranks(stopped_in_backward, 3, may_die=[1], timeout=datetime.timedelta(seconds=10),
                        environment={"COHORT_TRACE_DUMP": "never"})
    not_there = PROCESS.format(1) + r" has not arrived within 10\.0 s"
    is_stopped = (rf"  caused by: {not_there}: it is stopped \(SIGSTOP or a debugger\)\n"
                  r"  hint: continue the stopped rank \(kill -CONT PID\), or end it")
    for rank in (0, 2):  # whose time is over first tells the other
        by_another = (rf"  caused by: {PROCESS.format(2 - rank)} failed first: {not_there}\n"
                      rf"  caused by: {PROCESS.format(1)} is stopped \(SIGSTOP or a debugger\)\n"
                      r"  hint: continue the stopped rank \(kill -CONT PID\), or end it")
        assert_error(results[rank], "DistBackendError",
                     head(r"all_reduce #\d+", rank, 3, ", 80 B float32") + f"({is_stopped}|{by_another})")
    assert any("it is stopped" in results[rank][1] for rank in (0, 2))


def failed_work(rank, size):
    work = dist.all_reduce(torch.ones(4), async_op=True) if rank == 0 else dist.broadcast(torch.ones(4), 0, async_op=True)
    waited = error_of(work.wait)
    of_future = error_of(lambda: work.get_future().wait())
    return waited, of_future, error_of(lambda: (_ for _ in ()).throw(work.exception())), work.is_completed(), work.is_success()


def test_work_and_future_carry_the_error():
    for waited, of_future, given, is_completed, is_success in run_ranks(failed_work, 2):
        assert waited[0] == "DistBackendError" and "caused by: rank 0 calls all_reduce(SUM) of 4 float32" in waited[1]
        assert "caused by: rank 0 calls all_reduce(SUM) of 4 float32" in of_future[1]
        assert is_completed and not is_success


def wrong_arguments(rank, size):
    with pytest.raises(TypeError):
        dist.all_reduce("text")
    # In the call, also where somebody else will wait for the work.
    errors = [error_of(lambda: dist.broadcast(torch.ones(4), size, async_op=True)),
              error_of(lambda: dist.reduce(torch.ones(4), size + 1, async_op=True)),
              error_of(lambda: dist.gather(torch.ones(4), None, size, async_op=True)),
              error_of(lambda: dist.scatter(torch.ones(4), None, size, async_op=True)),
              error_of(lambda: dist.group.WORLD.broadcast(torch.ones(4), -1)),
              error_of(lambda: dist.all_gather([torch.zeros(3)] * size, torch.ones(4))),
              error_of(lambda: dist.reduce_scatter(torch.zeros(3), [torch.ones(2)] * size)),
              error_of(lambda: dist.all_reduce(torch.ones(4), op=dist.ReduceOp.BAND)),
              error_of(lambda: dist.send(torch.ones(1), rank))]
    total = torch.ones(2)
    dist.all_reduce(total)
    return errors, total.tolist()


def test_wrong_arguments_raise_value_errors_and_leave_the_group_well():
    for rank, (errors, total) in enumerate(run_ranks(wrong_arguments, 2)):
        expected = ["[cohort] broadcast: root 2 is out of range. Valid ranks are 0 to 1",
                    "[cohort] reduce: root 3 is out of range. Valid ranks are 0 to 1",
                    "[cohort] gather: root 2 is out of range. Valid ranks are 0 to 1",
                    "[cohort] scatter: root 2 is out of range. Valid ranks are 0 to 1",
                    "[cohort] broadcast: root -1 is out of range. Valid ranks are 0 to 1",
                    f"[cohort] all_gather needs a tensor of 4 elements at place {rank} of the list, this rank's, got 3",
                    f"[cohort] reduce_scatter needs a tensor of 3 elements at place {rank} of the list, this rank's, got 2",
                    "[cohort] all_reduce: Cannot use ReduceOp.BAND with non-integral dtype float32",
                    "Invalid destination rank: destination rank should not be the same as the rank of the current process."]
        assert errors == [("ValueError", text) for text in expected]
        assert total == [2, 2]


def errors_of_script(text, **variables):
    return [err for _, _, err in run_scripts(text, 2, **variables)]


WRONG_ROOT = """
import os, sys, torch, torch.distributed as dist, torchcohort
dist.init_process_group("cohort", init_method=os.environ["COHORT_TEST_STORE"], rank=int(os.environ["RANK"]), world_size=2)
try:
    dist.broadcast(torch.ones(4), 2)
except ValueError as error:
    print(error, file=sys.stderr)
dist.destroy_process_group()
"""


def test_frames_where_they_are_asked_for():
    text = "[cohort] broadcast: root 2 is out of range. Valid ranks are 0 to 1"
    for plain, framed in zip(errors_of_script(WRONG_ROOT), errors_of_script(WRONG_ROOT, TORCH_SHOW_CPP_STACKTRACES="1")):
        assert plain == text + "\n"
        assert text + "\nException raised from check_root at " in framed, framed


MEETS_OVER_TCP = """
import torch, torch.distributed as dist, torchcohort
dist.init_process_group("cohort", store=dist.TCPStore("127.0.0.1", 0, 1, True), rank=0, world_size=1)
dist.destroy_process_group()
"""


def test_log_of_libtorch():
    for quiet, told in zip(errors_of_script(MEETS_OVER_TCP), errors_of_script(MEETS_OVER_TCP, TORCH_CPP_LOG_LEVEL="INFO")):
        assert quiet == ""
        assert re.search(r"^\[I\d+ .*\[c10d\] The client socket has connected", told, re.M), told


def missing_rank(rank, size):
    url = os.environ["COHORT_TEST_STORE"]
    return error_of(lambda: dist.init_process_group("cohort", init_method=url, rank=rank, world_size=size + 1, timeout=SHORT))


def test_rank_that_never_comes():
    for kind, text in run_ranks(missing_rank, 2, backend=None):
        assert kind == "DistStoreError", (kind, text)
        assert "2" in text


def lost_store(rank, size):
    return error_of(lambda: dist.init_process_group("cohort", init_method="tcp://127.0.0.1:1", rank=1, world_size=2, timeout=SHORT))


def test_store_that_cannot_be_reached():
    assert run_ranks(lost_store, 1, backend=None)[0][0] == "DistNetworkError"


def wrong_world_size(rank, size):
    os.environ.update(RANK="0", WORLD_SIZE="-1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    return error_of(lambda: dist.init_process_group("cohort", timeout=SHORT))


def test_world_size_below_one_message():
    assert run_ranks(wrong_world_size, 1, backend=None) == [
        ("ValueError", "[cohort] the world size must be at least 1, got -1; see the variable WORLD_SIZE, or the argument world_size of "
                       "init_process_group")]
