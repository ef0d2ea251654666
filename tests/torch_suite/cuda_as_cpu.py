"""Runs the suite's tests for CUDA tensors on the CPU: whatever names a CUDA device means the CPU there.

Two parts: decorators that mark a test as one for CUDA instead of skipping it, and, in the ranks, replacements for the calls that
need a device. `torch.cuda.is_available()` stays false, so that PyTorch itself doesn't look for a device.
"""
import contextlib
import functools

import torch
from torch.overrides import TorchFunctionMode

MARK = "_for_cuda"


def install_decorators(common):
    """Replaces the decorators that skip a test for want of a GPU. Gives back whether a test is marked as one for CUDA."""

    def mark(function):
        setattr(function, MARK, True)
        return function

    def skip_if_lt_x_gpu(_, *, allow_cpu=False):
        return (lambda function: function) if allow_cpu else mark

    common.skip_if_no_gpu = mark
    common.skip_if_lt_x_gpu = skip_if_lt_x_gpu
    common.init_multigpu_helper = lambda world_size, _: {rank: [rank] for rank in range(world_size)}
    return lambda test: getattr(test, MARK, False)


def is_cuda(value):
    """Whether a device argument names a CUDA device. A bare number does, unlike a bool."""
    if isinstance(value, torch.device):
        return value.type == "cuda"
    if isinstance(value, str):
        return value.split(":")[0] == "cuda"
    return isinstance(value, int) and not isinstance(value, bool)


class OnCpu(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.cuda:
            return args[0]
        if is_cuda(kwargs.get("device")):
            kwargs["device"] = "cpu"
        if function is torch.Tensor.to:
            args = args[:1] + tuple("cpu" if is_cuda(value) else value for value in args[1:2]) + args[2:]
        return function(*args, **kwargs)


def on_cpu(function):
    @functools.wraps(function)
    def wrapper(module, *args, **kwargs):
        args = tuple("cpu" if is_cuda(value) else value for value in args)
        if is_cuda(kwargs.get("device")):
            kwargs["device"] = "cpu"
        return function(module, *args, **kwargs)

    return wrapper


def without_devices(function):
    """DistributedDataParallel takes no device_ids for a module on the CPU."""

    @functools.wraps(function)
    def wrapper(self, module, device_ids=None, output_device=None, *args, **kwargs):
        function(self, module, None, None, *args, **kwargs)

    return wrapper


def install(suite):
    """In a rank, before its test."""
    torch.nn.Module.cuda = lambda module, device=None: module
    torch.nn.Module.to = on_cpu(torch.nn.Module.to)
    ddp = torch.nn.parallel.DistributedDataParallel
    ddp.__init__ = without_devices(ddp.__init__)
    torch.cuda.set_device = lambda device: None
    torch.cuda.current_device = lambda: 0
    torch.cuda.device_count = lambda: int(suite.os.environ["WORLD_SIZE"])
    torch.cuda.synchronize = lambda device=None: None
    torch.cuda.device = lambda device: contextlib.nullcontext()
    OnCpu().__enter__()
