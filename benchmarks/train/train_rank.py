"""One Python rank of the question "train": DistributedDataParallel on Gloo, torch.utils.data.DataLoader and torch.optim.

The commands are those of train_rank.cpp. Trainees: "loop-WORKERS"; "fused-WORKERS", whose optimizer has fused=True instead of
PyTorch's default; "floor". ResNet-18 is torchvision's, changed for images of 32x32; images are read like torchvision's CIFAR10
with ToTensor and Normalize, tokens like nanoGPT's.
"""
import pathlib
import sys
import time

import numpy
import torch
import torch.distributed as dist
from PIL import Image
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks/support"), str(ROOT / "benchmarks/activation"), str(ROOT / "tests/e2e/models")]
from activation_rank import Gpt  # noqa: E402
from model_libraries import torchvision_resnet  # noqa: E402
from training_rank import answer_commands, leave, set_weights  # noqa: E402

CONTEXT, VERIFIED_STEPS = 128, 2
MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(-1, 1, 1)
STD = torch.tensor([0.247, 0.2435, 0.2616]).view(-1, 1, 1)


def to_tensor(image):
    pixels = torch.from_numpy(numpy.array(image, numpy.uint8, copy=True)).view(image.size[1], image.size[0], 3)
    return pixels.permute((2, 0, 1)).contiguous().to(torch.float32).div(255)


class Cifar10(Dataset):
    def __init__(self, root):
        files = [pathlib.Path(root) / f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)]
        records = numpy.concatenate([numpy.fromfile(file, numpy.uint8).reshape(-1, 1 + 3 * 32 * 32) for file in files])
        self.targets = records[:, 0].astype(int).tolist()
        self.images = numpy.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        image = to_tensor(Image.fromarray(self.images[index]))
        return image.clone().sub_(MEAN).div_(STD), self.targets[index]


class Tokens(Dataset):
    def __init__(self, path):
        self.tokens = numpy.memmap(path, numpy.uint16, "r")

    def __len__(self):
        return (len(self.tokens) - 1) // CONTEXT

    def __getitem__(self, index):
        window = torch.from_numpy(self.tokens[index * CONTEXT:(index + 1) * CONTEXT + 1].astype(numpy.int64))
        return window[:-1], window[1:]


def make_net(model):
    if model == "resnet18":
        net = torchvision_resnet.resnet18(num_classes=10)
        net.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        net.maxpool = nn.Identity()
    else:
        net = Gpt("plain")
    set_weights(net)
    return net


def make_optimizer(model, net, **options):
    if model == "resnet18":
        return torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, weight_decay=5e-4, **options)
    return torch.optim.AdamW(net.parameters(), 3e-4, **options)


class Loop:
    def __init__(self, name, model, workers, batch_size, data):
        dataset = Cifar10(data) if model == "resnet18" else Tokens(data)
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, int(batch_size), sampler=self.sampler, num_workers=int(workers), drop_last=True,
                                 persistent_workers=int(workers) > 0)
        self.batches, self.epoch = iter(()), 0
        net = make_net(model)
        self.is_text = model != "resnet18"
        self.net = net if name == "floor" else DistributedDataParallel(net)
        self.parameters = list(net.parameters())
        self.optimizer = make_optimizer(model, net, **({"fused": True} if name.startswith("fused") else {}))
        self.last_loss = None

    def next_batch(self):
        batch = next(self.batches, None)
        if batch is None:
            self.sampler.set_epoch(self.epoch)
            self.epoch += 1
            self.batches = iter(self.loader)
            batch = next(self.batches)
        return batch

    def loss(self, inputs, targets):
        scores = self.net(inputs)
        return nn.functional.cross_entropy(scores, targets.flatten() if self.is_text else targets)

    def step(self):
        begin = time.perf_counter()
        inputs, targets = self.next_batch()
        read = time.perf_counter()
        loss = self.loss(inputs, targets)
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.last_loss = loss.item()
        return read - begin, forward - read, backward - forward, time.perf_counter() - backward

    def verify(self):
        losses = []
        for _ in range(VERIFIED_STEPS):
            self.step()
            losses.append(self.last_loss)
        return self.sums(losses)

    @torch.no_grad()
    def sums(self, losses):
        total = sum(parameter.sum(dtype=torch.double).item() for parameter in self.parameters)
        squares = sum(parameter.square().sum(dtype=torch.double).item() for parameter in self.parameters)
        return " ".join(f"{number:.10g}" for number in (*losses, total, squares))

    def run_steps(self, num_warm, num_steps):
        for _ in range(num_warm):
            self.step()
        steps = [self.step() for _ in range(num_steps)]
        return " ".join(f"{seconds * 1e3:.6f}" for step in steps for seconds in step)


class Floor(Loop):
    def __init__(self, *words):
        super().__init__(*words)
        self.batch = self.next_batch()

    def step(self):
        self.optimizer.zero_grad()
        begin = time.perf_counter()
        loss = self.loss(*self.batch)
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        self.last_loss = loss.item()
        return 0, forward - begin, backward - forward, 0

    def verify(self):
        self.step()
        return self.sums([self.last_loss])


def make_trainee(name, *words):
    return Floor(name, *words) if name == "floor" else Loop(name, *words)


def main():
    rank, commands, init_method = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=init_method, rank=rank, world_size=2)
    answer_commands(commands, make_trainee, lambda trainee: trainee.verify())
    dist.destroy_process_group()
    leave()


if __name__ == "__main__":
    main()
