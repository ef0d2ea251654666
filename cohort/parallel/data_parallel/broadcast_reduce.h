/// Copies tensors to several devices, and sums over devices, within one process: torch/nn/parallel/comm.py. (Between processes
/// see comm/collectives/collectives.h.)
///
/// The coalesced forms copy many small tensors of one dtype together, in pieces of at most `buffer_size` bytes, to make fewer
/// copies. Copies are made in the devices' current streams. Autograd does not record them; it records those of Replicas.
/// Thread-safety: as the tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/data_parallel/placement.h"

namespace cohort::nn::parallel {

inline constexpr size_t kCoalescedBytes = 10 << 20;

/// Returns the tensor on each device: itself if the first device is its own, copies elsewhere.
COHORT_API std::vector<at::Tensor> broadcast(const at::Tensor& tensor, const Devices& devices);

/// Returns for each device the list of all tensors; for the first device they are the given tensors themselves. Throws c10::Error
/// for tensors that are not on the first device, c10::ValueError for devices of several types, no device, or an empty buffer.
COHORT_API std::vector<std::vector<at::Tensor>> broadcast_coalesced(const std::vector<at::Tensor>& tensors,
                                                                    const Devices& devices,
                                                                    size_t buffer_size = kCoalescedBytes);

/// Returns the sum on `destination`, which must be the device of one of them: adds to that one the others in their order. Returns
/// a single tensor as it is. Throws c10::ValueError for tensors of different sizes, c10::Error for another device.
COHORT_API at::Tensor reduce_add(const std::vector<at::Tensor>& tensors, const c10::Device& destination);

/// inputs[k][i]: tensor i of device k. Returns for each i the sum over the devices, on `destination`. Sums are sparse if all
/// their tensors are. Throws as reduce_add, and c10::ValueError if devices have different numbers of tensors, or tensors of
/// different dtypes.
COHORT_API std::vector<at::Tensor> reduce_add_coalesced(const std::vector<std::vector<at::Tensor>>& inputs,
                                                        const c10::Device& destination,
                                                        size_t buffer_size = kCoalescedBytes);

}  // namespace cohort::nn::parallel
