"""Backends "cohort" and "shm" for torch.distributed.

    import torchcohort
    torch.distributed.init_process_group("cohort")

"cohort" uses the fastest way for each device: CPU tensors go through shared memory if all ranks of the group can share it, else
over Gloo; CUDA tensors go over NCCL if this build has it. "shm" uses shared memory, and raises an error without it. DDP, FSDP2,
tensor and pipeline parallelism run on both unchanged. C++ ranks that use Cohort can be members of the same groups.
"""

import atexit
import os
import sys
import threading
import time

import torch
import torch.distributed as dist

from . import _build_facts

__version__ = _build_facts.VERSION

#: The folder of Cohort's CMake package for C++ programs (cmake -DCMAKE_PREFIX_PATH=...), as torch.utils.cmake_prefix_path.
cmake_prefix_path: str = os.path.dirname(__file__)


def _release(version):
    return ".".join(version.split("+")[0].split(".")[:2])


if _release(torch.__version__) != _release(_build_facts.TORCH_VERSION):
    raise ImportError(
        f"torchcohort {__version__} was built for PyTorch {_release(_build_facts.TORCH_VERSION)}, but this environment has "
        f"{torch.__version__}. Reinstall it here (pip install --no-build-isolation <Cohort's source>), or install "
        f"torch=={_build_facts.TORCH_VERSION}.")
if not dist.is_available():
    raise ImportError("torchcohort needs a PyTorch with torch.distributed, which this one does not have.")

from . import _C  # noqa: E402
from ._C import (  # noqa: E402
    TensorChannel, TensorListener, dump_flight_recorder, dump_flight_recorder_text, empty_shared_allocator_cache,
    has_shared_allocator, shared_allocator_stats, shm_memory_allocated, write_chrome_trace, write_flight_recorder)

_DEVICES = _C.joinable_backends()

__all__ = ["TensorChannel", "TensorListener", "dump_flight_recorder", "dump_flight_recorder_text",
           "cmake_prefix_path", "empty_shared_allocator_cache", "has_shared_allocator", "has_shared_memory", "share_memory",
           "shared_allocator_stats", "shm_empty", "shm_memory_allocated", "use_shared_allocator", "write_chrome_trace",
           "write_flight_recorder"]

_C.apply_shared_allocator(False)  # for COHORT_SHARED_ALLOCATOR=1, as early as possible


def use_shared_allocator(reserved_bytes: int | None = None) -> None:
    """Allocates CPU tensors of 64 KiB and more from now on in memory that is reused and that all ranks of this host map.

    Steps of a training loop then allocate no new pages, and collectives of the backends "cohort" and "shm" work in place, if all
    ranks of the group call this before the group is made. Call it before the model is built; COHORT_SHARED_ALLOCATOR=1 does it
    when torchcohort is imported. `reserved_bytes`: size of the reserved address space; None means the size of the host's
    memory.
    Raises RuntimeError if limits forbid that. See docs/guide/memory.md for forks, limits and figures.
    """
    _C.use_shared_allocator(reserved_bytes)


def shm_empty(*size: int, dtype: torch.dtype | None = None, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Returns a zeroed CPU tensor in memory that all ranks of `group` (default: all ranks) map. Each rank has its own tensor.

    Operations on only such tensors move each byte once instead of twice. Collective: every rank of the group must call this with
    a size and dtype of the same number of bytes. Raises ValueError for a group without shared memory.
    """
    if len(size) == 1 and not isinstance(size[0], int):
        size = tuple(size[0])
    return _C.shm_empty(list(size), dtype or torch.get_default_dtype(), group or dist.group.WORLD)


def has_shared_memory(group: dist.ProcessGroup | None = None) -> bool:
    """Whether shm_empty works on `group` (default: all ranks)."""
    return _C.has_shared_memory(group or dist.group.WORLD)


def share_memory(what: torch.nn.Module | torch.Tensor) -> None:
    """Moves a tensor, or a module's parameters, gradients and buffers, in place to memory that processes can share.

    Forked children use it directly; a TensorChannel sends it to other processes, also to C++ programs. Unlike the memory of
    torch.Tensor.share_memory_() it has no name in /dev/shm, and takes one file descriptor for a whole module.
    """
    if isinstance(what, torch.nn.Module):
        parameters = list(what.parameters())
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        _C.share_memory(parameters + gradients + list(what.buffers()))
    else:
        _C.share_memory([what])


# Returns the local variables of PyTorch's function that makes a group and calls a creator for each of its devices. Returns {} if
# a program calls the creator itself.
def _group_in_making():
    frame = sys._getframe(2)
    return frame.f_locals if frame.f_code is dist.distributed_c10d._new_process_group_helper.__code__ else {}


# Checks what PyTorch does not: it accepts any device, and if a group has two registered backends of different names, it silently
# uses the first for both.
def _check_backends(name, config):
    for device, other in (config.get_device_backend_map() if config else {}).items():
        is_registered = dist.Backend.backend_type_map.get(other) == dist.ProcessGroup.BackendType.CUSTOM
        if other == name and device not in _DEVICES[name]:
            raise ValueError(
                f'[cohort] backend string "{config}": backend "{name}" serves {" and ".join(_DEVICES[name])} tensors, not '
                f'{device} tensors')
        if is_registered and other != name:
            raise ValueError(
                f'[cohort] backend string "{config}": c10d keeps a single registered backend per group, so "{name}" and '
                f'"{other}" (for {device} tensors) cannot be in one; use "cohort" alone, which serves all devices')


# Returns the backend of an earlier device, as one backend serves all devices of a group that name it.
def _backend_of_earlier_device(name, config, group):
    for device, other in (config.get_device_backend_map() if config else {}).items():
        if other == name and torch.device(device) in group._device_types:
            backend = group._get_backend(torch.device(device))
            return getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
    return None


def _create(name):
    def create(options, _):
        making = _group_in_making()
        config = making.get("backend_config")
        _check_backends(name, config)
        return _backend_of_earlier_device(name, config, making.get("pg")) or _C.create_backend(name, options)
    return create


for _name, _devices in _DEVICES.items():
    dist.Backend.register_backend(_name, _create(_name), extended_api=True, devices=_devices)
# Threads that release a tensor need the interpreter, and a thread that returns from an operation while the interpreter ends
# aborts the process. So daemon threads get a moment to notice, if groups were not destroyed.
def _end():
    has_failed = hasattr(sys, "last_value")
    try:
        # Other ranks may need the operations of this one. After an error the exit must not wait for them.
        num_lost = 0 if has_failed else _C.complete_operations()
        if num_lost:
            print(f"[cohort] warning: exiting with {num_lost} operation(s) that nobody waited for and that could not be completed. "
                  "Call wait() on every Work and destroy_process_group() before the program ends.", file=sys.stderr)
    finally:
        _end_threads()
    if not has_failed and not num_lost:
        _C.warn_of_unawaited()  # after the threads have released their last operations


def _end_threads():
    if _C.end_background_threads():
        deadline = time.monotonic() + 0.3
        for thread in threading.enumerate():
            if thread.daemon and thread is not threading.current_thread():
                thread.join(max(0, deadline - time.monotonic()))


atexit.register(_end)
