"""object_python_rank.py BACKEND: one rank of a job that exchanges objects with C++ ranks (programs/comm/object_rank.cpp)."""
import os
import sys
import torch
import torch.distributed as dist

DTYPES = [torch.float, torch.double, torch.half, torch.bfloat16, torch.long, torch.int, torch.short, torch.int8,
          torch.uint8, torch.bool, torch.cfloat, torch.cdouble]


def value_of(rank):
    return {"rank": rank, "name": "x" * (rank * 1000 + 3) + "é😀", "pair": (rank * 0.1, rank == 1),
            "mixed": [None, -1, 1 << (40 + rank), complex(1, -2)], "ints": [1, 2, rank]}


def tensor_of(rank, dtype):
    return (torch.arange(6, dtype=torch.int) + rank).to(dtype).view(2, 3).t()


def exchange(group):
    rank, size = dist.get_rank(), dist.get_world_size(group)
    ranks = dist.get_process_group_ranks(group)
    everyone = [None] * size
    dist.all_gather_object(everyone, value_of(rank), group)
    assert everyone == [value_of(r) for r in ranks], everyone
    root = ranks[-1]
    gathered = [None] * size if rank == root else None
    dist.gather_object(value_of(rank), gathered, root, group)
    assert gathered is None or gathered == [value_of(r) for r in ranks]
    for source in (ranks[0], root):
        both = [value_of(source), value_of(source + 1)] if rank == source else [None, None]
        dist.broadcast_object_list(both, source, group)
        assert both == [value_of(source), value_of(source + 1)], both
    output = [None]
    dist.scatter_object_list(output, [value_of(10 + r) for r in range(size)] if rank == root else None, root, group)
    assert output == [value_of(10 + dist.get_rank(group))], output
    blobs = [None] * size
    dist.all_gather_object(blobs, b"\0\xff" + str(rank).encode(), group)
    assert blobs == [b"\0\xff" + str(r).encode() for r in ranks], blobs
    tensors = [None] * size
    dist.all_gather_object(tensors, [tensor_of(rank, dtype) for dtype in DTYPES], group)
    for r, got in zip(ranks, tensors):
        for tensor, dtype in zip(got, DTYPES):
            assert tensor.dtype == dtype and torch.equal(tensor, tensor_of(r, dtype)), (r, tensor)


def ring():
    rank, size = dist.get_rank(), dist.get_world_size()
    following, previous = (rank + 1) % size, (rank - 1) % size
    objects = [value_of(0), 7, b"b"]
    if rank == 0:
        dist.send_object_list(objects, following)
    received = [None] * 3
    assert dist.recv_object_list(received, previous) == previous
    assert received == objects, received
    if rank > 0:
        dist.send_object_list(received, following)


def main(backend):
    if backend != "gloo":
        import torchcohort  # noqa: F401
    dist.init_process_group(backend)
    exchange(dist.group.WORLD)
    ring()
    ends = dist.new_group([0, dist.get_world_size() - 1])
    if dist.get_rank() in (0, dist.get_world_size() - 1):
        exchange(ends)
    dist.destroy_process_group()
    if backend == "gloo":
        os._exit(0)  # the interpreter's own end may abort: see ddp_reference.py


if __name__ == "__main__":
    main(sys.argv[1])
