/// The device of the calling thread, so that one source runs on CPU, GPU and every other accelerator that LibTorch knows.
///
///     cohort::set_device(cohort::get_node_local_rank());
///     model->to(cohort::current_device());
///
/// Follows torch.accelerator (torch/accelerator/__init__.py). Without an accelerator the device is the CPU. Thread-safe.
#pragma once

#include <c10/core/Device.h>

#include "cohort/export.h"

namespace cohort {

/// Makes accelerator `index` the calling thread's device, and that of threads that never choose; on a machine without one the
/// CPU stays. Throws c10::ValueError for an index that is negative or not there.
COHORT_API void set_device(int index);
/// "cuda:1"; an accelerator without an index is the current one; the CPU changes nothing.
/// Throws c10::ValueError for a device that is not there, or is of another type than the accelerator.
COHORT_API void set_device(c10::Device device);

/// The one that the thread chose by set_device (or LibTorch's own functions), else the one set_device chose last in any thread,
/// else number LOCAL_RANK modulo the number of devices, which then also is the thread's current one for LibTorch. Without
/// an accelerator the CPU. Throws c10::ValueError if LOCAL_RANK is needed and is not a number.
COHORT_API c10::Device current_device();

}  // namespace cohort
