"""The Python process of the question "dataloader": torch.utils.data.DataLoader with typical transforms of training programs.

Arguments: the rank, the pipe that commands come from, an init method, of which only the pipe is used. The commands are those of
dataloader_rank.cpp. No torchvision is needed: the transforms do the same as its v1 transforms (on tensors for the CIFAR-like
datasets, on PIL images for the folder), without their checks of arguments.
"""
import math
import os
import pathlib
import sys
import time

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from training_rank import answer_commands, leave  # noqa: E402

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)
SIDE, PADDING, FOLDER_SIDE = 32, 4, 224


def random_crop(image):
    image = torch.nn.functional.pad(image, [PADDING] * 4)
    top = int(torch.randint(0, 2 * PADDING + 1, size=(1,)).item())
    left = int(torch.randint(0, 2 * PADDING + 1, size=(1,)).item())
    return image[..., top:top + SIDE, left:left + SIDE]


def random_flip(image):
    return image.flip(-1) if torch.rand(1) < 0.5 else image


def to_float(image):
    return image.to(torch.float32).div_(255)


def normalize(image):
    return image.clone().sub_(MEAN).div_(STD)


class Cifar(Dataset):
    """The same as made_images() of dataloader_rank.cpp."""

    def __init__(self, num_images, is_plain):
        numbers = torch.arange(num_images * 3 * SIDE * SIDE)
        self.images = ((numbers * 2654435761) >> 20).remainder_(256).to(torch.uint8).view(num_images, 3, SIDE, SIDE)
        self.labels = [i * 7 % 10 for i in range(num_images)]
        self.is_plain = is_plain

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.is_plain:
            return random_flip(to_float(image)), self.labels[index]
        return normalize(to_float(random_flip(random_crop(image)))), self.labels[index]


class Folder(Dataset):
    """ImageFolder(folder, Compose([RandomResizedCrop(224), RandomHorizontalFlip(), ToTensor(), Normalize(...)]))."""

    def __init__(self, folder):
        from PIL import Image  # noqa: PLC0415  only this case needs it
        self.image_module = Image
        classes = sorted(path for path in pathlib.Path(folder).iterdir() if path.is_dir())
        self.samples = [(str(path), label) for label, one in enumerate(classes) for path in sorted(one.iterdir())]

    def __len__(self):
        return len(self.samples)

    def load(self, path):
        with open(path, "rb") as file:
            return self.image_module.open(file).convert("RGB")

    @staticmethod
    def choose_part(width, height):
        area = height * width
        log_ratio = torch.log(torch.tensor((3 / 4, 4 / 3)))
        for _ in range(10):
            target = area * torch.empty(1).uniform_(0.08, 1.0).item()
            ratio = torch.exp(torch.empty(1).uniform_(log_ratio[0], log_ratio[1])).item()
            w, h = int(round(math.sqrt(target * ratio))), int(round(math.sqrt(target / ratio)))
            if 0 < w <= width and 0 < h <= height:
                top = torch.randint(0, height - h + 1, size=(1,)).item()
                left = torch.randint(0, width - w + 1, size=(1,)).item()
                return left, top, w, h
        side = min(width, height)
        return (width - side) // 2, (height - side) // 2, side, side

    def __getitem__(self, index):
        path, label = self.samples[index]
        image = self.load(path)
        left, top, width, height = self.choose_part(*image.size)
        image = image.crop((left, top, left + width, top + height))
        image = image.resize((FOLDER_SIDE, FOLDER_SIDE), self.image_module.BILINEAR)
        if torch.rand(1) < 0.5:
            image = image.transpose(self.image_module.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(numpy.array(image, numpy.uint8, copy=True)).view(FOLDER_SIDE, FOLDER_SIDE, 3)
        pixels = pixels.permute((2, 0, 1)).contiguous().to(torch.float32).div(255)
        return pixels.sub_(MEAN).div_(STD), label


class Reader:
    """A loader and its epochs."""

    def __init__(self, dataset, batch_size, num_workers):
        self.loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, num_workers=num_workers,
                                 persistent_workers=num_workers > 0)
        self.epoch = None

    def verify(self):
        count = labels = 0
        total = 0.0
        for images, targets in self.loader:
            count += images.size(0)
            labels += targets.sum().item()
            total += images.mean().item() * images.size(0)
        return f"{count} {labels} {total / count:.6f}"

    def run_steps(self, num_warm, num_steps):
        begin = time.perf_counter()
        count = 0
        for _ in range(num_steps):
            for images, _ in self.loader:
                count += images.size(0)
        return f"{(time.perf_counter() - begin) * 1e6 / count:.6f}"

    def begin_and_wait(self):
        """Takes half of an epoch, so that workers have allocated all their memory; answers with the pid."""
        self.epoch = iter(self.loader)
        for _ in range(max(1, len(self.loader) // 2)):
            next(self.epoch)
        time.sleep(0.3)
        return os.getpid()

    def finish(self):
        for _ in self.epoch:
            pass
        self.epoch = None
        return "ok"


def make_reader(_name, case, num_workers, batch_size, num_images, folder):
    dataset = Folder(folder) if case == "jpeg" else Cifar(int(num_images), case == "cifar-plain")
    return Reader(dataset, int(batch_size), int(num_workers))


def main():
    torch.set_num_threads(1)
    answer_commands(sys.argv[2], make_reader, lambda reader: reader.verify(),
                    {"hold": Reader.begin_and_wait, "finish": Reader.finish})
    leave()


if __name__ == "__main__":
    main()
