/// Memory of the simulated devices.
///
/// Two ranges of addresses of the same length: tensors point into the first, which nobody may read or write, and kernels find
/// the contents at the same offset of the second. Blocks go from one owner to the next as in LibTorch's allocator for CUDA:
/// a freed block serves the next request of the stream in which it was allocated, after what that stream holds and after what
/// the streams hold that were recorded as users; in between it is filled with 0xFF.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include "tests/support/sim_device/queue.h"

namespace cohort::sim {

/// Reserves the addresses. Once, by install().
void reserve_memory();

c10::Allocator* device_allocator();
/// The device whose memory it is. Throws c10::Error for other memory.
c10::DeviceIndex device_of(const void* pointer);
/// Where kernels find it. Throws c10::Error for memory that is not a device's.
void* contents_of(const void* pointer);
/// A stream that is not the block's own uses it until what the stream holds when the block is freed has run. Other memory than
/// the devices' is left alone.
void record_use(const c10::DataPtr& data, Queue& queue);
/// Keeps as many bytes as there is room for.
void resize_storage(const c10::Storage& storage, size_t bytes);

/// The tensor's memory as a CPU tensor that keeps nothing alive; for work in streams.
at::Tensor host_view(const at::Tensor& tensor);

}  // namespace cohort::sim
