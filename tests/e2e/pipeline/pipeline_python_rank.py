"""The same as tests/e2e/programs/pipeline/pipeline_rank.cpp, by torch.distributed.pipelining."""
import sys

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, schedules
from torch.distributed.pipelining.microbatch import TensorChunkSpec, _Replicate

NUM_PARTS = 4


def waves(shape, phase):
    count = 1
    for size in shape:
        count *= size
    return (torch.arange(count, dtype=torch.float64) * 0.37 + phase).sin().div(2).float().view(shape)


class Block(torch.nn.Module):
    def __init__(self, stage):
        super().__init__()
        self.wide = torch.nn.Linear(8, 16)
        self.narrow = torch.nn.Linear(16, 8)
        with torch.no_grad():
            for number, parameter in enumerate(self.parameters(), 1):
                parameter.copy_(waves(parameter.shape, 13.0 * stage + 5.0 * number))

    def forward(self, x):
        return x + self.narrow(torch.tanh(self.wide(x)))


class Masked(Block):
    def forward(self, x, *, mask, places):
        return x + self.narrow(torch.tanh(self.wide(x + places))) * mask.t()


def weighted(x, y_and_rows, of_columns):
    """Python gives every microbatch all of loss_kwargs: weights of rows are a column of the target here."""
    y, of_rows = y_and_rows[:, :-1], y_and_rows[:, -1:]
    return ((x - y).square() * of_rows * of_columns).mean()


def show(what, tensor):
    values = tensor.detach().double().flatten()
    weights = torch.arange(1, values.numel() + 1, dtype=torch.float64).rsqrt()
    print(f"{what} {values.sum():.9f} {values.abs().sum():.9f} {(values * weights).sum():.9f}")


def stages_of(name, rank):
    if name in ["GPipe", "1F1B"]:
        return [rank]
    return [rank, 3 - rank] if name in ["ZBVZeroBubble", "DualPipeV"] else [rank, rank + 2]


def train(name, head, part, target, schedule_options, kwargs_spec=None, kwargs={}, loss_kwargs=None):
    rank = dist.get_rank()
    indices = stages_of(name, rank)
    blocks = [part(index) for index in indices]
    stages = [PipelineStage(block, index, 2 * len(indices), torch.device("cpu")) for block, index in zip(blocks, indices)]
    is_single = len(indices) == 1
    schedule = schedules.get_schedule_class(name)(stages[0] if is_single else stages, NUM_PARTS,
                                                  **schedule_options)
    schedule._kwargs_chunk_spec = kwargs_spec  # LoopedBFS does not take it
    inputs = [waves([len(target), 8], 1.0)] if rank == 0 else []
    has_last = indices[-1] == 2 * len(indices) - 1
    losses = []
    output = schedule.step(*inputs, target=target if has_last else None, losses=losses, loss_kwargs=loss_kwargs, **kwargs)
    if has_last:
        show(f"{head} output", output)
        show(f"{head} losses", torch.stack(losses))
    for block, index in zip(blocks, indices):
        for key, parameter in block.named_parameters():
            show(f"{head} stage {index} {key}", parameter.grad)
    if name in ["ZBVZeroBubble", "DualPipeV"]:
        return  # eval fails there
    evaluated = schedule.eval(*inputs, target=target if has_last else None, loss_kwargs=loss_kwargs, **kwargs)
    if has_last:
        show(f"{head} evaluated", evaluated)


def train_plain(name, rows, scales):
    train(name, f"{name} {rows} {'scaled' if scales else 'whole'}", Block, waves([rows, 8], 2.0),
          {"loss_fn": torch.nn.functional.mse_loss, "scale_grads": scales})


def train_with_kwargs(name, rows):
    target = torch.cat([waves([rows, 8], 2.0), waves([rows, 1], 5.0) + 1], dim=1)
    spec = {"mask": TensorChunkSpec(1), "places": _Replicate()}
    train(name, f"{name} {rows} kwargs", Masked, target, {"loss_fn": weighted}, spec,
          {"mask": waves([1, rows], 3.0), "places": waves([8], 4.0)}, {"of_columns": waves([8], 6.0) + 1})


dist.init_process_group("gloo")
for name in sys.argv[1:]:
    for scales in [True, False]:
        train_plain(name, 8, scales)
    train_with_kwargs(name, 8)
dist.destroy_process_group()
