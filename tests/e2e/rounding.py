"""How far apart two right ways to compute the same numbers may be, as on processors that add them up in another order."""
import math

import torch


def rounding(dtype, operations, magnitude):
    """After so many operations in a row, each of which rounds numbers of up to `magnitude`. They go up as often as down, so that
    their sum grows as the root of their number; four times that is for the one of many numbers that is the farthest off."""
    return 4 * torch.finfo(dtype).eps * math.sqrt(operations) * float(magnitude)


def assert_rounded_alike(got, wanted, operations, what="", magnitude=None):
    """Tensors of one dtype and shape. `magnitude`: of what is added up, where sums leave little of it; else the largest number's."""
    if magnitude is None:
        magnitude = wanted.abs().max() if wanted.numel() else 0
    atol = rounding(wanted.dtype, operations, magnitude) if wanted.is_floating_point() else 0
    torch.testing.assert_close(got, wanted, rtol=0, atol=atol, msg=lambda text: f"{what}: {text}")
