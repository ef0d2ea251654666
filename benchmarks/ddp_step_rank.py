"""One Python rank of ddp-step: the same commands, weights, data and steps as ddp_step_rank.cpp."""
import math
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LEARNING_RATE = 1e-4


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if inputs != outputs or stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        shortcut = self.downsample(x) if self.downsample is not None else x
        y = self.bn1(self.conv1(x)).relu_()
        return self.bn2(self.conv2(y)).add_(shortcut).relu_()


class ResNet18(nn.Module):
    """For 32x32 images and 10 classes, as cohort::models::resnet18 with is_small_input."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        for i, width in enumerate([64, 128, 256, 512]):
            first = BasicBlock(width if i == 0 else width // 2, width, 1 if i == 0 else 2)
            self.add_module(f"layer{i + 1}", nn.Sequential(first, BasicBlock(width, width, 1)))
        self.fc = nn.Linear(512, 10)

    def forward(self, images):
        x = self.bn1(self.conv1(images)).relu_()
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(nn.functional.adaptive_avg_pool2d(x, (1, 1)).flatten(1))


def mlp_width(name):
    return 4096 if name == "mlp-4x4096" else 1024


def make_net(name):
    if name == "linear-20x1":
        return nn.Linear(20, 1)
    if name == "resnet18":
        return ResNet18()
    layers = [layer for _ in range(4) for layer in (nn.Linear(mlp_width(name), mlp_width(name)), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def make_batch(name, rank):
    torch.manual_seed(100 + rank)
    if name == "linear-20x1":
        return torch.randn(32, 20), torch.randn(32, 1)
    if name == "resnet18":
        return torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,))
    return torch.randn(32, mlp_width(name)), torch.randn(32, mlp_width(name))


@torch.no_grad()
def set_weights(module):
    torch.manual_seed(7)
    for name, parameter in module.named_parameters():
        if parameter.dim() > 1:
            bound = 1 / math.sqrt(parameter.numel() // parameter.size(0))
            parameter.uniform_(-bound, bound)
        else:
            parameter.fill_(1.0 if name.endswith("weight") else 0.0)


class Trainee:
    def __init__(self, name, variant):
        net = make_net(name)
        set_weights(net)
        self.parameters = list(net.parameters())
        self.forward = DistributedDataParallel(net, init_sync=False) if variant == "ddp" else net
        self.optimizer = torch.optim.SGD(net.parameters(), LEARNING_RATE)

    def step(self, batch):
        self.optimizer.zero_grad()
        output = self.forward(batch[0])
        loss = nn.functional.mse_loss if batch[1].is_floating_point() else nn.functional.cross_entropy
        loss(output, batch[1]).backward()
        self.optimizer.step()

    def gradient_sums(self, batch):
        self.step(batch)
        total = sum(p.grad.sum(dtype=torch.double).item() for p in self.parameters)
        squares = sum(p.grad.square().sum(dtype=torch.double).item() for p in self.parameters)
        return f"{total:.10g} {squares:.10g}"

    def run_steps(self, batch, num_warm, num_steps):
        for _ in range(num_warm):
            self.step(batch)
        begin = time.perf_counter()
        for _ in range(num_steps):
            self.step(batch)
        return f"{(time.perf_counter() - begin) * 1e3 / num_steps:.6f}"


def main():
    rank, commands, init_method = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=init_method, rank=rank, world_size=2)
    trainees, batch = {}, None
    with open(commands) as lines:
        for line in iter(lines.readline, ""):
            verb, *words = line.split()
            if verb == "quit":
                break
            if verb == "copy":
                trainees[words[0]] = Trainee(words[1], words[0])
                batch, answer = make_batch(words[1], rank), "ok"
            elif verb == "drop":
                trainees, answer = {}, "ok"
            elif verb == "verify":
                answer = trainees[words[0]].gradient_sums(batch)
            else:
                answer = trainees[words[0]].run_steps(batch, int(words[1]), int(words[2]))
            print("=", answer, flush=True)
    trainees = {}
    dist.destroy_process_group()
    os._exit(0)  # the interpreter's own end may abort: PyTorch's Gloo threads may still let go of a tensor


if __name__ == "__main__":
    main()
