/// The device of the calling thread, so that one source runs on CPU, GPU and every other accelerator that LibTorch supports.
///
///     cohort::set_device(cohort::get_node_local_rank());
///     model->to(cohort::current_device());
///
/// Follows torch.accelerator (torch/accelerator/__init__.py). Without an accelerator the device is the CPU. Thread-safe.
#pragma once

#include <c10/core/Device.h>

#include "cohort/export.h"

namespace cohort {

/// Makes accelerator `index` the device of the calling thread and of threads that never choose one. Without an accelerator the
/// device stays the CPU. Throws c10::ValueError for an index that is negative or does not exist.
COHORT_API void set_device(int index);
/// As above, for a device such as "cuda:1". An accelerator without an index means the current one; "cpu" changes nothing.
/// Throws c10::ValueError for a device that does not exist, or is of another type than the accelerator.
COHORT_API void set_device(c10::Device device);

/// Returns the device that this thread chose with set_device (or LibTorch's own functions). Otherwise the last choice of
/// set_device in any thread. Otherwise number LOCAL_RANK modulo the number of devices, which also becomes the thread's current
/// device for LibTorch. Without an accelerator, the CPU. Throws c10::ValueError if LOCAL_RANK is needed and is not a number.
COHORT_API c10::Device current_device();

}  // namespace cohort
