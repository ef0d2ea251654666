"""functional_python_rank.py BACKEND RESULT: the calls of programs/parallel/functional_rank.cpp, made by PyTorch."""
import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
import torch.distributed.nn.functional as nnf
from safetensors.torch import save_file

warnings.simplefilter("ignore")
SUM = dist.ReduceOp.SUM


class Recorder:
    def __init__(self):
        self.results, self.prefix, self.seed = {}, "", 0

    def run(self, name, shapes, function, record_values=True):
        self.seed += 1
        torch.manual_seed(100 * self.seed + dist.get_rank())
        inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
        outputs = function([value * value for value in inputs])
        loss = torch.zeros(())
        for i, output in enumerate(outputs):
            if record_values:
                self.results[f"{self.prefix}.{name}.value.{i}"] = output.detach().clone()
            loss = loss + (output.pow(3) * torch.randn(output.shape)).sum()
        has_second = not name.startswith("f.")
        first = torch.autograd.grad(loss, inputs, create_graph=has_second)
        second_loss = torch.zeros(())
        for i, gradient in enumerate(first):
            self.results[f"{self.prefix}.{name}.gradient.{i}"] = gradient.detach().clone()
            second_loss = second_loss + gradient.pow(2).sum()
        if not has_second:
            return
        for i, gradient in enumerate(torch.autograd.grad(second_loss, inputs)):
            self.results[f"{self.prefix}.{name}.second.{i}"] = gradient.contiguous()


def run_nn(record, group, root):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    is_root = dist.get_rank() == root
    one, many = [(2, 3)], [(2, 3)] * size
    record.run("broadcast", one, lambda x: [nnf.broadcast(x[0], root, group)])
    record.run("gather", one, lambda x: nnf.gather(x[0].t(), root, group))
    record.run("scatter", many, lambda x: [nnf.scatter(x, root, group)])

    def reduce(x):
        total = nnf.reduce(x[0], root, SUM, group)
        return [total if is_root else total * 0]
    record.run("reduce", one, reduce, is_root)
    record.run("reduce_scatter", many, lambda x: [nnf.reduce_scatter(torch.empty(2, 3), x, SUM, group)])
    record.run("all_gather", one, lambda x: nnf.all_gather(x[0], group))
    room = [torch.empty(2, 3) for _ in range(size)]
    record.run("all_to_all", many, lambda x: nnf.all_to_all(room, x, group))
    record.run("all_to_all_single", [(size * (size - 1) // 2, 2)],
               lambda x: [nnf.all_to_all_single(torch.empty(rank * size, 2), x[0], [rank] * size, list(range(size)), group)])
    record.run("all_to_all_equal", [(size * 2, 2)],
               lambda x: [nnf.all_to_all_single(torch.empty(size * 2, 2), x[0], group=group)])
    record.run("all_reduce", one, lambda x: [nnf.all_reduce(x[0].t(), SUM, group)])


def waited(tensors):
    return [fc.wait_tensor(tensor) for tensor in tensors]


def run_functional(record, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    one, two = [(2 * size, 3 * size)], [(size, 2), (3, 2 * size)]
    record.run("f.all_reduce", one, lambda x: waited([fc.all_reduce(x[0].t(), "sum", group)]))
    for dim in (0, 1):
        record.run(f"f.all_gather{dim}", one, lambda x: waited([fc.all_gather_single(x[0], dim, group)]))
        record.run(f"f.reduce_scatter{dim}", one, lambda x: waited([fc.reduce_scatter_single(x[0], "sum", dim, group)]))
    record.run("f.all_reduce_coalesced", two, lambda x: waited(fc.all_reduce_coalesced(x, "sum", group)))
    record.run("f.all_gather_coalesced", two, lambda x: waited(fc.all_gather_single_coalesced(x, group)))
    record.run("f.reduce_scatter_coalesced", two, lambda x: waited(fc.reduce_scatter_single_coalesced(x, "sum", [0, 1], group)))
    record.run("f.all_to_all", [(size * (size + 1) // 2, 2)],
               lambda x: waited([fc.all_to_all_single(x[0], [rank + 1] * size, [r + 1 for r in range(size)], group)]))
    record.run("f.all_to_all_equal", one, lambda x: waited([fc.all_to_all_single(x[0], None, None, group)]))
    # permute_tensor takes no group object in Python before it looks its ranks up; the same exchange by hand.
    turn = [(r + 1) % size for r in range(size)]
    sent = [4 if r == turn[rank] else 0 for r in range(size)]
    received = [4 if turn[r] == rank else 0 for r in range(size)]
    record.run("f.permute", [(4,)], lambda x: waited([fc.all_to_all_single(x[0], received, sent, group)]))
    torch.manual_seed(dist.get_rank())
    record.results[record.prefix + ".f.broadcast"] = fc.wait_tensor(fc.broadcast(torch.randn(5), size - 1, group))
    record.results[record.prefix + ".f.max"] = fc.wait_tensor(fc.all_reduce(torch.randn(5), "max", group))


def main(backend, result):
    if backend != "gloo":
        import torchcohort  # noqa: F401
    dist.init_process_group(backend)
    record = Recorder()
    for root in (0, dist.get_world_size() - 1):
        record.prefix = f"root{root}"
        run_nn(record, dist.group.WORLD, root)
    record.prefix = "world"
    run_functional(record, dist.group.WORLD)
    pair = dist.new_group([0, 1])
    if dist.get_rank() in (0, 1):
        record.prefix = "pair"
        run_nn(record, pair, 1)
        run_functional(record, pair)
    save_file({name: tensor.contiguous() for name, tensor in record.results.items()}, result)
    dist.destroy_process_group()
    if backend == "gloo":
        os._exit(0)  # the interpreter's own end may abort: see ddp_reference.py


if __name__ == "__main__":
    main(*sys.argv[1:])
