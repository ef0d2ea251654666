"""Backends "cohort" and "shm" for torch.distributed.

    import torchcohort
    torch.distributed.init_process_group("cohort")

"cohort" is the best there is for each device: CPU tensors go through shared memory where all ranks of the group can share
it, else over Gloo; CUDA tensors over NCCL where this build has it. "shm" is shared memory or an error. DDP, FSDP2, tensor
and pipeline parallelism run on them unchanged. C++ ranks that use Cohort can be members of the same groups.
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

#: For C++ programs, as torch.utils.cmake_prefix_path: cmake -DCMAKE_PREFIX_PATH=... finds Cohort's CMake package there.
cmake_prefix_path: str = os.path.dirname(__file__)


def _release(version):
    return ".".join(version.split("+")[0].split(".")[:2])


if _release(torch.__version__) != _release(_build_facts.TORCH_VERSION):
    raise ImportError(
        f"torchcohort {__version__} was built for PyTorch {_release(_build_facts.TORCH_VERSION)}, but this environment has "
        f"{torch.__version__}. Reinstall it here (pip install --no-build-isolation <Cohort's source>), or install "
        f"torch=={_build_facts.TORCH_VERSION}.")
if not dist.is_available():
    raise ImportError("torchcohort needs a PyTorch that was built with torch.distributed, and this one was not.")

from . import _C  # noqa: E402
from ._C import (  # noqa: E402
    TensorChannel, TensorListener, dump_flight_recorder, dump_flight_recorder_text, empty_shared_allocator_cache,
    has_shared_allocator, shared_allocator_stats, shm_memory_allocated, write_chrome_trace, write_flight_recorder)

_DEVICES = _C.joinable_backends()

__all__ = ["TensorChannel", "TensorListener", "dump_flight_recorder", "dump_flight_recorder_text",
           "cmake_prefix_path", "empty_shared_allocator_cache", "has_shared_allocator", "has_shared_memory", "share_memory",
           "shared_allocator_stats", "shm_empty", "shm_memory_allocated", "use_shared_allocator", "write_chrome_trace",
           "write_flight_recorder"]

_C.apply_shared_allocator(False)  # COHORT_SHARED_ALLOCATOR=1: as early as can be


def use_shared_allocator(reserved_bytes: int = 0) -> None:
    """From now on CPU tensors of 64 KiB and more come from memory that is recycled and that the ranks of this host map.

    Steps of a training loop then make no new pages, and collectives of backends "cohort" and "shm" work where tensors lie, if
    all ranks of the group call this before the group is made. Call it before the model is built; COHORT_SHARED_ALLOCATOR=1
    does it when torchcohort is imported. `reserved_bytes` of address space are reserved, 0: as much as the host has memory.
    RuntimeError where limits forbid that. See docs/guide/memory.md for forks, limits and figures.
    """
    _C.use_shared_allocator(reserved_bytes)


def shm_empty(*size: int, dtype: torch.dtype | None = None, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """A zeroed CPU tensor in memory that all ranks of `group` (default: all ranks) map; each rank has its own.

    Operations whose tensors all lie there move each byte once instead of twice. Collective: every rank of the group must
    call this with a size and dtype of the same number of bytes. ValueError for a group without shared memory.
    """
    if len(size) == 1 and not isinstance(size[0], int):
        size = tuple(size[0])
    return _C.shm_empty(list(size), dtype or torch.get_default_dtype(), group or dist.group.WORLD)


def has_shared_memory(group: dist.ProcessGroup | None = None) -> bool:
    """True if shm_empty works on `group` (default: all ranks)."""
    return _C.has_shared_memory(group or dist.group.WORLD)


def share_memory(what: torch.nn.Module | torch.Tensor) -> None:
    """Moves a tensor, or a module's parameters, gradients and buffers, in place to memory that other processes can use.

    Forked children use it as it is; a TensorChannel hands it to others, those written in C++ too. Unlike that of
    torch.Tensor.share_memory_() it has no name in /dev/shm and takes one descriptor for a whole module.
    """
    if isinstance(what, torch.nn.Module):
        parameters = list(what.parameters())
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        _C.share_memory(parameters + gradients + list(what.buffers()))
    else:
        _C.share_memory([what])


# The local variables of the function of PyTorch that makes a group, and calls a creator for each of its devices; none where a
# program calls the creator itself.
def _group_in_making():
    frame = sys._getframe(2)
    return frame.f_locals if frame.f_code is dist.distributed_c10d._new_process_group_helper.__code__ else {}


# PyTorch's own code does not look: it takes any device, and where a group has two registered backends of different names it
# silently uses the first for both.
def _check_backends(name, config):
    for device, other in (config.get_device_backend_map() if config else {}).items():
        is_registered = dist.Backend.backend_type_map.get(other) == dist.ProcessGroup.BackendType.CUSTOM
        if other == name and device not in _DEVICES[name]:
            raise ValueError(
                f'backend string "{config}": backend "{name}" serves {" and ".join(_DEVICES[name])} tensors, not {device} '
                f'tensors')
        if is_registered and other != name:
            raise ValueError(
                f'backend string "{config}": c10d keeps a single registered backend per group, so "{name}" and "{other}" '
                f'(for {device} tensors) cannot be in one; use "cohort" alone, which serves all devices')


# One backend serves all devices of a group that name it.
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
# Threads that let go of a tensor need the interpreter, and one that comes back from an operation when the interpreter is half
# gone aborts the process. So where groups were not destroyed, daemon threads get a moment to notice.
def _end():
    has_failed = hasattr(sys, "last_value")
    try:
        # Other ranks may count on what this one has started. After an error the end must not wait for them.
        num_lost = 0 if has_failed else _C.complete_operations()
        if num_lost:
            print(f"[cohort] warning: exiting with {num_lost} operation(s) that nobody waited for and that could not be completed. "
                  "Call wait() on every Work and destroy_process_group() before the program ends.", file=sys.stderr)
    finally:
        _end_threads()
    if not has_failed and not num_lost:
        _C.warn_of_unawaited()  # the threads have let go of the last of them


def _end_threads():
    if _C.end_background_threads():
        deadline = time.monotonic() + 0.3
        for thread in threading.enumerate():
            if thread.daemon and thread is not threading.current_thread():
                thread.join(max(0, deadline - time.monotonic()))


atexit.register(_end)
