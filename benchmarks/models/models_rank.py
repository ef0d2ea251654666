"""The Python process of the question "models": torchvision's resnet18 and timm's resnet50d.

Arguments: the rank, the pipe that commands come from, an init method, of which only the pipe is used.
"""
import pathlib
import sys
import time

import torch
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "benchmarks/support"), str(ROOT / "tests/e2e/models")]
from model_libraries import timm_resnet, torchvision_resnet  # noqa: E402
from training_rank import Trainee, answer_commands  # noqa: E402

SEED = 7


def make(name, **options):
    if name == "resnet50d":
        return timm_resnet.resnet50d(zero_init_last=False, **options)
    return getattr(torchvision_resnet, name)(**options)


class ModelTrainee(Trainee):
    def __init__(self, variant, name, batch_size, image_size):
        torch.manual_seed(SEED)
        net = make(name, num_classes=10)
        images = torch.randn(int(batch_size), 3, int(image_size), int(image_size))
        labels = torch.randint(10, (int(batch_size),))
        if variant != "contiguous":
            net, images = net.to(memory_format=torch.channels_last), images.contiguous(memory_format=torch.channels_last)
        super().__init__(net, (images, labels))
        self.is_bfloat16 = variant == "bfloat16"

    def step(self):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.is_bfloat16):
            loss = torch.nn.functional.cross_entropy(self.forward(self.batch[0]), self.batch[1])
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def verify(self):
        loss = self.step()
        squares = sum(parameter.grad.square().sum(dtype=torch.double).item() for parameter in self.parameters)
        return f"{loss:.10g} {squares:.10g}"


class Making:
    """Measures the time to make a model."""

    def __init__(self, variant, path):
        self.path = path if variant == "pretrained" else None

    def run_steps(self, *_):
        begin = time.perf_counter()
        model = make("resnet50d")
        if self.path:
            model.load_state_dict(load_file(self.path))
        return f"{(time.perf_counter() - begin) * 1e3:.6f}"


def make_trainee(variant, *words):
    return Making(variant, *words) if variant in ("made", "pretrained") else ModelTrainee(variant, *words)


if __name__ == "__main__":
    torch.set_num_threads(1)
    answer_commands(sys.argv[2], make_trainee, lambda trainee: trainee.verify())
