"""A Python rank of the question "fsdp-step": FSDP2 as a user applies it, with AdamW.

Arguments: the number of ranks, the backend, "libtorch" or "fused", the rank, the pipe that commands come from, an init method.
"""
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from training_rank import Trainee, answer_commands, leave, make_mlp, set_weights  # noqa: E402


class FsdpTrainee(Trainee):
    def __init__(self, net, batch):
        super().__init__(net, batch)
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, fused=sys.argv[3] == "fused")

    def run_part(self, part, num_warm, num_steps):
        for _ in range(num_warm):
            self.step()
        elapsed = 0
        for _ in range(num_steps):
            begin = time.perf_counter()
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.forward(self.batch[0]), self.batch[1]).backward()
            middle = time.perf_counter()
            self.optimizer.step()
            end = time.perf_counter()
            elapsed += {"pass": middle - begin, "optimizer": end - middle, "step": end - begin}[part]
        return f"{elapsed * 1e3 / num_steps:.6f}"


class Part:
    """The trainee that answer_commands runs as "fsdp2.step"."""

    def __init__(self, trainee, part):
        self.trainee, self.part = trainee, part

    def run_steps(self, num_warm, num_steps):
        return self.trainee.run_part(self.part, num_warm, num_steps)


def make_trainee(variant, name):
    variant, part = variant.split(".")
    width = 4096 if name == "mlp-4x4096" else 1024
    if name not in MADE:
        net = make_mlp(width)
        set_weights(net)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in net:
            if next(layer.parameters(), None) is not None:
                fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        torch.manual_seed(100 + dist.get_rank())
        MADE.clear()
        MADE[name] = FsdpTrainee(net, (torch.randn(32, width), torch.randn(32, width)))
    return Part(MADE[name], part)


MADE = {}


def sums_after_step(part):
    """Returns sums of all parameters over all ranks."""
    part.trainee.step()
    total = torch.zeros(2, dtype=torch.double)
    for parameter in part.trainee.parameters:
        own = parameter.to_local().detach().double()
        total += torch.stack([own.sum(), own.square().sum()])
    dist.all_reduce(total)
    return f"{total[0]:.10g} {total[1]:.10g}"


def main():
    world_size, backend, _, rank, commands, init_method = sys.argv[1:]
    torch.set_num_threads(1)
    if backend == "cohort":
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "build/python"))
        import torchcohort  # noqa: F401
    dist.init_process_group(backend, init_method=init_method, rank=int(rank), world_size=int(world_size))
    answer_commands(commands, make_trainee, sums_after_step)
    dist.destroy_process_group()
    leave()


if __name__ == "__main__":
    main()
