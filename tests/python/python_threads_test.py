"""Python's lock: threads, callbacks, and tensors that other threads let go of never stop a collective."""
import gc
import multiprocessing
import threading
import time
import weakref

import pytest
import torch
import torch._dynamo  # DDP would import it in every rank
import torch.distributed as dist
from ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.tier_all  # it waits under load


def one_group_per_thread(rank, size):
    groups = [dist.new_group() for _ in range(4)]
    sums = [0.0] * len(groups)

    def reduce(index):
        for step in range(200):
            tensor = torch.full((100,), float(rank + index + step))
            dist.all_reduce(tensor, group=groups[index])
            sums[index] += tensor[99].item()

    threads = [threading.Thread(target=reduce, args=[index]) for index in range(len(groups))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sums


def test_each_thread_with_a_group_of_its_own():
    expected = [sum(1.0 + 2 * (index + step) for step in range(200)) for index in range(4)]
    assert run_ranks(one_group_per_thread, 2) == [expected, expected]


def waiting_while_others_compute(rank, size):
    """Rank 1 comes when rank 0 has counted: meanwhile rank 0's other thread must get Python's lock."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["counted"])
        dist.all_reduce(torch.ones(1))
        return None
    steps, over = 0, threading.Event()
    thread = threading.Thread(target=lambda: (dist.all_reduce(torch.ones(1)), over.set()))
    thread.start()
    while not over.is_set():
        steps += 1
        if steps == 20:
            store.set("counted", "yes")
        time.sleep(0.001)
    thread.join()
    return steps


def test_waiting_lets_other_threads_run():
    assert run_ranks(waiting_while_others_compute, 2)[0] >= 20


def futures(rank, size):
    seen = []

    def then(future):
        seen.append(threading.get_ident())
        return future.value()[0] * 2

    doubled = []
    for step in range(100):
        work = dist.all_reduce(torch.full((1000,), float(step)), async_op=True)
        doubled.append(work.get_future().then(then))
    return [future.wait()[999].item() for future in doubled], len(seen)


def test_callbacks_of_futures_run_python():
    for values, count in run_ranks(futures, 2):
        assert values == [4.0 * step for step in range(100)] and count == 100


def callback_uses_the_group(rank, size):
    again = torch.ones(3)

    def then(future):
        dist.all_reduce(again)
        return again

    work = dist.all_reduce(torch.ones(3), async_op=True)
    return work.get_future().then(then).wait().tolist()


def test_callback_may_use_the_group():
    assert run_ranks(callback_uses_the_group, 2) == [[2, 2, 2]] * 2


def failing_callback(rank, size):
    def then(future):
        raise KeyError("mine")

    future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(then)
    with pytest.raises(Exception, match="mine"):
        future.wait()
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def test_error_of_a_callback_stays_there():
    assert run_ranks(failing_callback, 2) == [2, 2]


class Marked(torch.Tensor):
    """A subclass: the last reference to its Python object needs the interpreter to go away."""


def dropped_tensors(rank, size):
    gone = []
    works = []
    for step in range(200):
        tensor = torch.ones(5000).as_subclass(Marked)
        tensor.note = object.__new__(type("Note", (), {}))
        weakref.finalize(tensor.note, gone.append, step)
        works.append(dist.all_reduce(tensor, async_op=True))
        if step % 3:
            works.clear()  # neither work nor tensor has a name in Python from here on
        del tensor
    dist.barrier()
    works.clear()
    for _ in range(2000):
        gc.collect()
        if len(gone) == 200:
            break
        time.sleep(0.05)
    return len(gone)


def test_tensors_dropped_by_the_progress_thread():
    assert run_ranks(dropped_tensors, 2) == [200, 200]


def groups_dropped_with_callbacks(rank, size):
    """Whoever drops a group waits for its thread, which may be about to run Python."""
    for step in range(30):
        group, kept = dist.new_group(), []
        for _ in range(5):
            work = dist.all_reduce(torch.ones(2000).as_subclass(Marked), group=group, async_op=True)
            kept.append(work.get_future().then(lambda future: future.value()[0] * 2))
        if step % 2:
            kept.clear()
        dist.destroy_process_group(group)
        del group, work
    return "done"


def test_groups_dropped_with_callbacks():
    assert run_ranks(groups_dropped_with_callbacks, 2) == ["done", "done"]


def gc_during_collectives(rank, size):
    gc.freeze()  # what the imports made: a collection then takes microseconds
    stop = threading.Event()

    def collect():
        while not stop.is_set():
            cycle = [torch.ones(10)]
            cycle.append(cycle)
            del cycle
            gc.collect()

    thread = threading.Thread(target=collect)
    thread.start()
    total = torch.ones(20_000)
    for _ in range(100):
        cycle = [dist.all_reduce(total, async_op=True)]
        cycle.append(cycle)
        cycle[0].wait()
        total /= size
        del cycle
    stop.set()
    thread.join()
    return total.sum().item()


def test_gc_during_collectives():
    assert run_ranks(gc_during_collectives, 2) == [20_000, 20_000]


def ddp_gradients(rank, size, hook=None):
    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(20, 40), torch.nn.ReLU(), torch.nn.Linear(40, 1))
    ddp = DistributedDataParallel(net, bucket_cap_mb=0.001)
    if hook is not None:
        ddp.register_comm_hook(dist.group.WORLD, hook)
    for step in range(3):
        torch.manual_seed(100 * step + rank)
        ddp.zero_grad()
        ddp(torch.randn(8, 20)).sum().backward()
    return [parameter.grad for parameter in net.parameters()]


def averaging_hook(group, bucket):
    def divided(future):
        return future.value()[0] / group.size()

    return dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future().then(divided)


def test_ddp_with_a_python_hook():
    plain = run_ranks(ddp_gradients, 2)
    hooked = run_ranks(lambda rank, size: ddp_gradients(rank, size, averaging_hook), 2)
    for rank in range(2):
        for one, other in zip(plain[rank], hooked[rank], strict=True):
            assert torch.equal(one, other)


def kept_futures_of_dropped_works(rank, size):
    """Works are dropped at once, futures kept, callbacks start operations of their own; a synchronous one now and then."""
    futures, started = [], []
    group = dist.new_group()

    def start_another(future):
        started.append(dist.all_reduce(torch.ones(1), group=group, async_op=True))

    for step in range(1200 // size):
        for root in range(size):
            gathered = [torch.zeros(3).as_subclass(Marked) for _ in range(size)] if rank == root else None
            futures.append(dist.gather(torch.full((3,), float(rank + step)), gathered, dst=root, async_op=True).get_future())
        parts = [torch.zeros(2) for _ in range(size)]
        futures.append(dist.all_gather(parts, torch.full((2,), float(rank)), async_op=True).get_future())
        if step % 10 == 0:
            futures[-1].then(start_another)
        if step % 7 == 0:
            total = torch.ones(1)
            dist.all_reduce(total)
            assert total.item() == size
        if len(futures) > 200:
            del futures[:100]
    for future in futures:
        future.wait()
    dist.barrier()
    for work in list(started):
        work.wait()
    return parts[size - 1].tolist()


def burn(over):
    while not over.is_set():
        pass


@pytest.mark.parametrize("size", [2, 4, 8])
def test_futures_outlive_their_works_beside_load(size):
    over = multiprocessing.get_context("fork").Event()
    load = multiprocessing.get_context("fork").Process(target=burn, args=(over,), daemon=True)
    load.start()
    try:
        assert run_ranks(kept_futures_of_dropped_works, size) == [[size - 1.0] * 2] * size
    finally:
        over.set()
        load.join()
