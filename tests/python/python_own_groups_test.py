"""Groups that a program builds from a store by itself, as torchft and others do, beside the default group or without one."""
import datetime
import os
import re
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

BACKENDS = ["gloo", "cohort", "shm"]


def store_of(rank, size):
    path = os.environ["COHORT_TEST_STORE"].removeprefix("file://")
    return dist.FileStore(path + ".own", size)


def build(backend, store, rank, size, name="", timeout=60, ranks=()):
    timeout = datetime.timedelta(seconds=timeout)
    group = dist.ProcessGroup(store, rank, size)
    if backend == "gloo":
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO,
                                dist.ProcessGroupGloo(store, rank, size, timeout))
        return group
    options = torch._C._distributed_c10d._DistributedBackendOptions()
    options.store, options.group_rank, options.group_size = store, rank, size
    options.timeout, options.group_id, options.global_ranks_in_group = timeout, name, list(ranks)
    plugin = dist.Backend._plugins[backend.upper()]
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, plugin.creator_fn(options, None))
    return group


def sum_in(group, rank):
    total = torch.arange(3.0) + 10 ** rank
    group.allreduce([total]).wait()
    return total.tolist(), group._get_backend(torch.device("cpu")).size()


def alone_beside_all(backend, prefix):
    def rank_main(rank, size):
        store = store_of(rank, size)
        everyone = build(backend, dist.PrefixStore("all", store), rank, size)
        alone = build(backend, dist.PrefixStore(prefix.format(rank), store), 0, 1)
        return sum_in(everyone, rank), sum_in(alone, rank)
    return rank_main


@pytest.mark.parametrize("prefix", ["alone{}", "alone", "cpu/"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_group_of_one_rank_over_the_store_of_all(backend, prefix):
    assert run_ranks(alone_beside_all(backend, prefix), 2, backend=None) == [
        (([11, 13, 15], 2), ([1, 2, 3], 1)), (([11, 13, 15], 2), ([10, 11, 12], 1))]


# Each has other members, in another order, so that a membership check which meets another's has two processes for a rank.
def several_with_one_prefix_each(backend):
    def rank_main(rank, size):
        store = store_of(rank, size)
        sums = []
        for name, members in (("a", [0, 1, 2]), ("b", [2, 1]), ("c", [1, 2, 0]), ("d", [0, 2])):
            if rank in members:
                group = build(backend, dist.PrefixStore(name, store), members.index(rank), len(members))
                sums.append(sum_in(group, rank))
        return sums
    return rank_main


@pytest.mark.parametrize("backend", BACKENDS)
def test_groups_of_other_members_with_one_prefix_each(backend):
    a, b, d = ([111, 114, 117], 3), ([110, 112, 114], 2), ([101, 103, 105], 2)
    assert run_ranks(several_with_one_prefix_each(backend), 3, backend=None) == [[a, a, d], [a, b, a], [a, b, a, d]]


# Later groups of the default group know each other from its ranks, which are others than those of the group built by hand. Ranks
# that share no memory know a process by what it has written to the store alone.
def own_group_before_a_later_one(hosts):
    def rank_main(rank, size):
        os.environ["COHORT_HOST_ID"] = hosts.format(rank)
        dist.init_process_group("cohort", init_method=os.environ["COHORT_TEST_STORE"], rank=rank, world_size=size)
        pids = [None] * size
        dist.all_gather_object(pids, os.getpid())
        own = build("cohort", dist.PrefixStore("own", store_of(rank, size)), size - 1 - rank, size)
        sums = sum_in(own, rank)
        later = dist.new_group([1, 2])
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            dist.all_reduce(torch.ones(1), group=later)
        except RuntimeError as error:
            return sums, pids, str(error)
        return sums, pids, ""
    return rank_main


@pytest.mark.parametrize("hosts", ["all on one", "one for {}"])
def test_a_group_after_one_built_by_hand_knows_the_default_groups_ranks(hosts):
    results = run_ranks(own_group_before_a_later_one(hosts), 3, backend=None, may_die=[2])
    sums, pids, error = results[1]
    assert sums == results[0][0] == ([111, 114, 117], 3)
    assert f"rank 2 (pid {pids[2]} on " in error, error


# Its ranks are its own, whatever the ranks of the group are in whose store it lies.
def own_group_in_the_default_store(hosts):
    def rank_main(rank, size):
        os.environ["COHORT_HOST_ID"] = hosts.format(rank)
        dist.init_process_group("cohort", init_method=os.environ["COHORT_TEST_STORE"], rank=rank, world_size=size)
        sums = [sum_in(dist.group.WORLD, rank)]
        for name, members in (("pair", [2, 0]), ("all", [1, 2, 0])):
            if rank in members:
                store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())
                own = build("cohort", store, members.index(rank), len(members))
                sums.append(sum_in(own, rank))
                received = torch.full((2,), float(rank))
                own.broadcast(received, 0).wait()
                sums.append(received.tolist())
        return sums
    return rank_main


@pytest.mark.parametrize("hosts", ["all on one", "one for {}"])
def test_groups_built_by_hand_in_the_default_groups_store(hosts):
    everyone, pair = ([111, 114, 117], 3), ([101, 103, 105], 2)
    assert run_ranks(own_group_in_the_default_store(hosts), 3, backend=None) == [
        [everyone, pair, [2, 2], everyone, [1, 1]],
        [everyone, everyone, [1, 1]],
        [everyone, pair, [2, 2], everyone, [1, 1]]]


# Rank 1 keeps its process, and lets go of its group only.
def dropped(backend):
    def rank_main(rank, size):
        group = build(backend, dist.PrefixStore("group", store_of(rank, size)), rank, size, name="mine", timeout=60)
        told = os.environ["COHORT_TEST_STORE"].removeprefix("file://") + ".told"
        result = sum_in(group, rank)
        if rank == 1:
            del group
            while not os.path.exists(told):
                time.sleep(0.01)
            return result, "left"
        try:
            sum_in(group, rank)
        except RuntimeError as error:
            return result, str(error)
        finally:
            open(told, "w").close()
        return result, "no error"
    return rank_main


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_group_that_is_dropped_is_left_at_once_message(backend):
    (first, error), (second, left) = run_ranks(dropped(backend), 2, backend=None)
    assert (first, second, left) == (([11, 13, 15], 2), ([11, 13, 15], 2), "left")
    if backend == "gloo":
        assert re.search("Connection (closed|reset) by peer", error), error
    else:
        assert re.fullmatch(r'\[cohort\] all_reduce #2 on group "mine" failed\n'
                            r"  rank 0 of 2 on \S+, backend shm, 12 B float32\n"
                            r"  caused by: rank 1 \(pid \d+ on \S+\) has left the group by destroying it\n"
                            r"  hint: .*", error.rstrip("\n")), error


# Threads join groups of their own at the same time, with Python's lock released while they wait for each other.
def groups_of_threads(rank, size):
    results = {}

    def run(number):
        for turn in range(8):
            group = build("cohort", dist.PrefixStore(f"{number}/{turn}", store_of(rank, size)), rank, size, name=f"thread {number}")
            results[number, turn] = sum_in(group, rank)
            del group
    threads = [threading.Thread(target=run, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(results), set(map(str, results.values()))


def test_threads_join_groups_at_the_same_time():
    assert run_ranks(groups_of_threads, 2, backend=None) == [(32, {"([11.0, 13.0, 15.0], 2)"})] * 2
