"""Ranks started by fork, spawn and forkserver; children of a rank leave its group alone."""
import multiprocessing
import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from ranks import BUILD, run_ranks


def rank_main(rank, size, url, answers):
    import torchcohort  # noqa: F401
    dist.init_process_group("cohort", init_method=url, rank=rank, world_size=size)
    total = torch.full((10,), float(rank + 1))
    dist.all_reduce(total)
    answers.put((rank, total.tolist()))
    dist.destroy_process_group()


@pytest.fixture
def path_for_children(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{BUILD / 'python'}:{os.path.dirname(__file__)}")


@pytest.mark.parametrize("module, method", [
    (multiprocessing, "fork"), (multiprocessing, "forkserver"),
    (torch.multiprocessing, "fork"), (torch.multiprocessing, "spawn"),
], ids=lambda each: each if isinstance(each, str) else each.__name__)
def test_ranks_started_by(module, method, tmp_path, path_for_children):
    context = module.get_context(method)
    answers = context.SimpleQueue()
    arguments = [(rank, 2, f"file://{tmp_path}/store", answers) for rank in range(2)]
    processes = [context.Process(target=rank_main, args=each) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
    assert [process.exitcode for process in processes] == [0, 0]
    assert sorted(answers.get() for _ in processes) == [(0, [3.0] * 10), (1, [3.0] * 10)]


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.tensor(float(index)), os.getpid()


def data_loader_workers(rank, size):
    """Workers are forked from a rank in the middle of its work, and end while it goes on."""
    total, pids = torch.zeros(1), set()
    for _ in range(2):
        works = [dist.all_reduce(torch.ones(100), async_op=True) for _ in range(10)]
        for batch, where in torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2):
            part = batch.sum().reshape(1)
            dist.all_reduce(part)
            total += part
            pids |= set(where.tolist())
        for work in works:
            work.wait()
    return total.item(), len(pids - {os.getpid()})


def test_data_loader_workers_leave_the_group_alone():
    assert run_ranks(data_loader_workers, 2) == [(2 * 2 * 2016.0, 4)] * 2


def forked_children(rank, size):
    """One ends in the ordinary way of a fork, one by exec, one uses the group, which must not reach the other rank."""
    endings = []
    for step in range(6):
        work = dist.all_reduce(torch.ones(1000), async_op=True)
        child = os.fork()
        if child == 0:
            if step % 3 == 0:
                os._exit(3)
            if step % 3 == 1:
                os.execlp("true", "true")
            try:
                dist.destroy_process_group()
            finally:
                os._exit(4)
        work.wait()
        endings.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        dist.barrier()
    return endings


def test_forked_children_leave_the_group_alone():
    assert run_ranks(forked_children, 2) == [[3, 0, 4, 3, 0, 4]] * 2


def child_that_calls(rank, size):
    """Returns what the child's calls said."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        texts = []
        for call in (lambda: dist.all_reduce(torch.ones(3)), lambda: dist.all_reduce(torch.ones(3), async_op=True).wait(),
                     lambda: dist.send(torch.ones(3), 1 - rank)):
            try:
                call()
            except dist.DistBackendError as error:
                texts.append(str(error).splitlines()[2])
        os.write(writer, "\n".join(texts).encode())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    total = torch.ones(1)
    dist.all_reduce(total)
    return os.read(reader, 10_000).decode().splitlines(), total.item()


def test_collective_of_a_forked_child_is_refused():
    no_member = "  caused by: this process was forked from the rank, and is not a member of its groups"
    assert run_ranks(child_that_calls, 2) == [([no_member] * 3, 2)] * 2
