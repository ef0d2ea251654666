"""One Python rank of ddp-step: the same commands, weights, data and steps as ddp_step_rank.cpp."""
import math
import pathlib
import re
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from training_rank import Trainee, answer_commands, leave, make_mlp, set_weights  # noqa: E402


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
    """ResNet-18 for 32x32 images and 10 classes, as cohort::models::resnet18 with is_small_input."""

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


def resnet50_shapes():
    def convolution(outputs, inputs, size):
        return [(outputs, inputs, size, size), (outputs,), (outputs,)]

    shapes, inputs = convolution(64, 3, 7), 64
    for num_blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(num_blocks):
            shapes += convolution(width, inputs, 1) + convolution(width, width, 3) + convolution(4 * width, width, 1)
            shapes += convolution(4 * width, inputs, 1) if block == 0 else []
            inputs = 4 * width
    return shapes + [(1000, inputs), (1000,)]


def gpt_124m_shapes(width=768):
    layer = [(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,)]
    layer += [(width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    return [(50257, width), (1024, width)] + 12 * layer + [(width,), (width,)]


SHAPES = {"resnet50-parameters": resnet50_shapes(), "gpt-124m-parameters": gpt_124m_shapes()}


class ParameterSet(nn.Module):
    """See parameter_set.h."""

    def __init__(self, shapes):
        super().__init__()
        for i, shape in enumerate(shapes):
            self.register_parameter(f"p{i}", nn.Parameter(torch.empty(shape)))

    def forward(self, x):
        mean = torch.zeros(())
        for parameter in self.parameters():
            if parameter.dim() == 1:
                mean = mean + parameter.mean()
            else:
                matrix = parameter.flatten(1)
                mean = (x.narrow(1, 0, matrix.size(1)) + mean).matmul(matrix.t()).mean()
        return mean


def net_of(name):
    return re.sub("-(unused|view|hook)$", "", name)


def mlp_width(name):
    return 4096 if "-4x4096" in name else 1024


def make_net(name):
    if name == "linear-20x1":
        return nn.Linear(20, 1)
    if net_of(name) in SHAPES:
        return ParameterSet(SHAPES[net_of(name)])
    return ResNet18() if net_of(name) == "resnet18" else make_mlp(mlp_width(name))


def make_batch(name, rank):
    torch.manual_seed(100 + rank)
    if name == "linear-20x1":
        return torch.randn(32, 20), torch.randn(32, 1)
    if net_of(name) in SHAPES:
        num_inputs = max(math.prod(shape[1:]) for shape in SHAPES[net_of(name)])
        return torch.randn(16, num_inputs), torch.randn(())
    if net_of(name) == "resnet18":
        return torch.randn(2, 3, 32, 32), torch.randint(0, 10, (2,))
    return torch.randn(32, mlp_width(name)), torch.randn(32, mlp_width(name))


def make_trainee(variant, name):
    net = make_net(name)
    set_weights(net)
    if variant == "ddp":
        net = DistributedDataParallel(net, init_sync=False, find_unused_parameters=name.endswith("-unused"),
                                      gradient_as_bucket_view=name.endswith("-view"))
        if name.endswith("-hook"):
            net.register_comm_hook(None, allreduce_hook)
    return Trainee(net, make_batch(name, dist.get_rank()))


def first_gradients(trainee):
    trainee.step()
    return trainee.gradient_sums()


def main():
    rank, commands, init_method = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=init_method, rank=rank, world_size=2)
    answer_commands(commands, make_trainee, first_gradients)
    dist.destroy_process_group()
    leave()


if __name__ == "__main__":
    main()
