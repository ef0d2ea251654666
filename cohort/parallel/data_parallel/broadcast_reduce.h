/// Copies of tensors on several devices, and sums over devices, within one process: torch/nn/parallel/comm.py. (Between processes
/// see comm/collectives/collectives.h.)
///
/// The coalesced forms copy many small tensors of one dtype together, in pieces of at most `buffer_size` bytes, so that devices
/// are spoken to less often. Copies are made in the devices' current streams. No history for autograd; Replicas has one.
/// Thread-safety: as the tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/data_parallel/placement.h"

namespace cohort::nn::parallel {

inline constexpr size_t kCoalescedBytes = 10 << 20;

/// The tensor on each device: itself where the first device is its own, copies elsewhere.
COHORT_API std::vector<at::Tensor> broadcast(const at::Tensor& tensor, const Devices& devices);

/// Of each device the list of all tensors, those of the first device the given ones themselves.
/// Throws c10::Error for tensors that are not on the first device, c10::ValueError for devices of several types, none, or no
/// buffer.
COHORT_API std::vector<std::vector<at::Tensor>> broadcast_coalesced(const std::vector<at::Tensor>& tensors,
                                                                    const Devices& devices,
                                                                    size_t buffer_size = kCoalescedBytes);

/// The sum on `destination`, which must be the device of one of them: that one, then the others in their order. A single tensor
/// is returned as it is. Throws c10::ValueError for tensors of other sizes, c10::Error for another device.
COHORT_API at::Tensor reduce_add(const std::vector<at::Tensor>& tensors, const c10::Device& destination);

/// inputs[k][i]: tensor i of device k. The sum over the devices of each i, on `destination`. Sums of sparse tensors are sparse
/// where all are. Throws as reduce_add, and c10::ValueError where devices have different numbers of tensors, or others in dtype.
COHORT_API std::vector<at::Tensor> reduce_add_coalesced(const std::vector<std::vector<at::Tensor>>& inputs,
                                                        const c10::Device& destination,
                                                        size_t buffer_size = kCoalescedBytes);

}  // namespace cohort::nn::parallel
