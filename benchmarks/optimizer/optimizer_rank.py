"""The Python process of the question "optimizer": PyTorch's optimizers, foreach and fused.

Arguments: the rank, the pipe that commands come from, an init method. Commands as those of optimizer_rank.cpp.
"""
import os
import pathlib
import sys
import time

import torch

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1] / "support"), str(HERE.parents[1] / "ddp")]
from training_rank import answer_commands, leave  # noqa: E402
from ddp_step_rank import resnet50_shapes  # noqa: E402

CASES = {
    "adamw": lambda parameters, how: torch.optim.AdamW(parameters, 1e-3, **how),
    "adam": lambda parameters, how: torch.optim.Adam(parameters, 1e-3, weight_decay=1e-4, **how),
    "sgd-momentum": lambda parameters, how: torch.optim.SGD(parameters, 1e-2, momentum=0.9, weight_decay=1e-4, **how),
    "sgd-nesterov": lambda parameters, how: torch.optim.SGD(parameters, 1e-2, momentum=0.9, weight_decay=1e-4, nesterov=True, **how),
    "sgd": lambda parameters, how: torch.optim.SGD(parameters, 1e-2, **how),
}


class Side:
    def __init__(self, side, case):
        torch.manual_seed(7)
        self.parameters = []
        for shape in resnet50_shapes():
            self.parameters.append(torch.rand(shape).requires_grad_())
            self.parameters[-1].grad = torch.rand(shape) - 0.4
        self.optimizer = CASES[case](self.parameters, {side.removeprefix("python-"): True})

    def sums_after_three_steps(self):
        for _ in range(3):
            self.optimizer.step()
        with torch.no_grad():
            total = sum(parameter.sum(dtype=torch.double).item() for parameter in self.parameters)
            squares = sum(parameter.square().sum(dtype=torch.double).item() for parameter in self.parameters)
        return f"{total:.14g} {squares:.14g}"

    def run_steps(self, num_warm, num_steps):
        for _ in range(num_warm):
            self.optimizer.step()
        begin = time.perf_counter()
        for _ in range(num_steps):
            self.optimizer.step()
        return f"{(time.perf_counter() - begin) * 1e3 / num_steps:.6f}"


def main():
    torch.set_num_threads(os.cpu_count())
    answer_commands(sys.argv[2], Side, Side.sums_after_three_steps)
    leave()


if __name__ == "__main__":
    main()
