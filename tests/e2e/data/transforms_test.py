"""Transforms of images beside torchvision's, on the same images with the same arguments."""
import itertools
import subprocess

import pytest
import torch
from torchvision_transforms import autoaugment, functional, transforms, v2

pytestmark = pytest.mark.tier_all  # training does not need pictures

MODES = {mode.value: mode for mode in functional.InterpolationMode}
SIZES = [(3, 23, 31), (1, 40, 17), (3, 8, 8)]


def draw(kind, channels, height, width):
    c, y, x = torch.meshgrid(torch.arange(channels), torch.arange(height), torch.arange(width), indexing="ij")
    texture = x * 37 + y * 101 + c * 59 + x * y * 7 + (x ^ y) * 13
    gradient = 20 + c * 30 + x * 120 // width + y * 60 // height
    return ((texture if kind == "texture" else gradient) & 255).to(torch.uint8)


def images(dtypes=("uint8", "float")):
    return list(itertools.product(("texture", "gradient"), dtypes, SIZES))


@pytest.fixture
def compare(programs):
    """Each case: (op, image, arguments, what torchvision makes of it). At most so many values may be further off than the tolerance."""

    def run(cases, tolerance, rare=0.0):
        text = "".join(f"{op} {kind} {dtype} {' '.join(map(str, size))} {' '.join(map(str, arguments))}\n"
                       for op, (kind, dtype, size), arguments, _ in cases)
        done = subprocess.run([programs / "transform_images"], input=text, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert len(lines) == len(cases)
        for (op, image, arguments, expected), line in zip(cases, lines):
            kind, dtype, size = image
            drawn = draw(kind, *size)
            wanted = expected(drawn if dtype == "uint8" else drawn.float() / 255).double()
            sizes, values = line.split("|")
            ours = torch.tensor([float(value) for value in values.split()], dtype=torch.double)
            assert [int(number) for number in sizes.split()] == list(wanted.shape), (op, image, arguments)
            unit = 1 if dtype == "uint8" else 1 / 255
            off = (ours - wanted.flatten()).abs() > tolerance * unit + 1e-6
            assert off.double().mean() <= rare, (op, image, arguments, int(off.sum()), (ours - wanted.flatten()).abs().max())

    return run


def test_colors_are_torchvisions(compare):
    cases = []
    for image, factor in itertools.product(images(), (0.0, 0.4, 1.0, 1.9)):
        for op in ("brightness", "contrast", "saturation", "sharpness"):
            cases.append((op, image, [factor], lambda x, op=op, f=factor: getattr(functional, f"adjust_{op}")(x, f)))
    for image, factor in itertools.product(images(), (-0.5, -0.21, 0.0, 0.1, 0.5)):
        cases.append(("hue", image, [factor], lambda x, f=factor: functional.adjust_hue(x, f)))
    for image, bits in itertools.product(images(["uint8"]), (1, 3, 8)):
        cases.append(("posterize", image, [bits], lambda x, b=bits: functional.posterize(x, b)))
    for image in images(["uint8"]):
        for threshold in (0, 100, 255):
            cases.append(("solarize", image, [threshold], lambda x, t=threshold: functional.solarize(x, t)))
        cases.append(("equalize", image, [], functional.equalize))
    for image in images():
        cases.append(("autocontrast", image, [], functional.autocontrast))
    compare(cases, tolerance=0)


def test_sizes_are_torchvisions(compare):
    """v2 leaves uint8 to interpolate(), which the older functions do not."""
    cases = []
    for image, mode, antialias in itertools.product(images(), ("nearest", "bilinear", "bicubic"), (True, False)):
        for size in ((12, 9), (50, 70), (23, 5)):
            cases.append(("resize", image, [mode, int(antialias), *size],
                          lambda x, m=mode, a=antialias, s=size: v2.functional.resize(x, list(s), MODES[m], antialias=a)))
        for shorter, longest in ((11, 0), (11, 14), (60, 0)):
            cases.append(("resize", image, [mode, int(antialias), shorter, 0, longest],
                          lambda x, m=mode, a=antialias, s=shorter, n=longest: v2.functional.resize(x, [s], MODES[m], n or None, a)))
    compare(cases, tolerance=1)


def test_padding_and_crops_are_torchvisions(compare):
    cases = []
    for image, mode in itertools.product(images(), ("constant", "edge", "reflect", "symmetric")):
        for padding in ([3], [2, 5], [1, 0, 4, 6]):
            fill = 7 if mode == "constant" and image[1] == "uint8" else 0
            cases.append(("pad", image, [mode, fill, *padding],
                          lambda x, m=mode, f=fill, p=padding: functional.pad(x, p, fill=f, padding_mode=m)))
    for image, size in itertools.product(images(), ((5, 4), (8, 30), (41, 33))):
        cases.append(("center_crop", image, size, lambda x, s=size: functional.center_crop(x, list(s))))
    compare(cases, tolerance=0)


def test_rotations_are_torchvisions(compare):
    cases = []
    for image, angle, mode in itertools.product(images(), (0.0, 30.0, -75.5, 89.0, 180.0), ("nearest", "bilinear")):
        for expand, center in ((0, None), (1, None), (0, (3.0, 5.0))):
            cases.append(("rotate", image, [angle, mode, expand, 9 if image[1] == "uint8" else 0.25, *(center or ())],
                          lambda x, a=angle, m=mode, e=expand, c=center, f=9 if image[1] == "uint8" else 0.25:
                          functional.rotate(x, a, MODES[m], bool(e), c and list(c), [f])))
    # Where a place lies on the border between two pixels, the last bit of a sine decides.
    compare(cases, tolerance=1, rare=0.01)


def test_augmentations_are_torchvisions(compare):
    names = ["Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness",
             "Posterize", "Solarize", "AutoContrast", "Equalize"]
    strengths = {"ShearX": (0.3, -0.17), "ShearY": (0.3, -0.17), "TranslateX": (5.0, -3.0), "TranslateY": (5.0, -3.0),
                 "Rotate": (30.0, -11.0), "Posterize": (4.0,), "Solarize": (90.0,)}
    cases = []
    for image, (number, name) in itertools.product(images(["uint8"]), enumerate(names)):
        for strength, mode, fill in itertools.product(strengths.get(name, (0.7, -0.4)), ("nearest", "bilinear"), (-1, 40)):
            cases.append(("augment", image, [number, strength, mode, fill],
                          lambda x, n=name, s=strength, m=mode, f=fill:
                          autoaugment._apply_op(x, n, s, MODES[m], None if f < 0 else [float(f)] * x.shape[0])))
    compare(cases, tolerance=1, rare=0.01)


def test_strengths_of_rand_augment_are_torchvisions(programs):
    for magnitude in (0, 9, 15, 30):
        space = transforms.RandAugment()._augmentation_space(31, (100, 331))
        wanted = [float(values if values.ndim == 0 else values[magnitude]) for values, _ in space.values()]
        line = f"strengths texture uint8 3 100 331 {magnitude}\n"
        done = subprocess.run([programs / "transform_images"], input=line, capture_output=True, text=True, timeout=300)
        assert [float(value) for value in done.stdout.split("|")[1].split()] == pytest.approx(wanted, abs=1e-4), magnitude
