#include "cohort/parallel/data_parallel/broadcast_reduce.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/utils/tensor_flatten.h>

#include <algorithm>

namespace cohort::nn::parallel {
namespace {

using TensorVector = std::vector<at::Tensor>;

at::Tensor copied_to(const at::Tensor& tensor, const c10::Device& device) {
  return tensor.to(device, /*non_blocking=*/!device.is_cpu(), /*copy=*/true);
}

// Returns pieces of a flat tensor that share its memory, but each with a version counter of its own.
TensorVector split_like(const at::Tensor& flat, const TensorVector& tensors) {
  auto parts = torch::utils::unflatten_dense_tensors(flat, tensors);
  for (auto& part : parts) part = part.variable_data();
  return parts;
}

// Checks that tensors of two devices match: their lists are divided by dtype and device type, which must be the same.
void check_alike(const at::Tensor& first, const at::Tensor& other) {
  TORCH_CHECK_VALUE(first.dtype() == other.dtype() && first.device().type() == other.device().type(),
                    "[cohort] reduce_add_coalesced: tensors to add must have one dtype and device type, got ",
                    first.dtype(), " on ", first.device(), " and ", other.dtype(), " on ", other.device());
}

void check_buffer_size(size_t buffer_size) {
  TORCH_CHECK_VALUE(buffer_size > 0, "[cohort] buffer_size must be positive, got ", buffer_size);
}

}  // namespace

TensorVector broadcast(const at::Tensor& tensor, const Devices& devices) {
  const at::NoGradGuard no_grad;
  TensorVector copies;
  for (const auto& device : devices) {
    const bool is_own = copies.empty() && tensor.device() == device;
    copies.push_back(is_own ? tensor : copied_to(tensor, device));
  }
  return copies;
}

std::vector<TensorVector> broadcast_coalesced(const TensorVector& tensors, const Devices& devices, size_t buffer_size) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK_VALUE(!devices.empty(), "[cohort] broadcast_coalesced needs at least one device");
  check_buffer_size(buffer_size);
  for (const auto& device : devices) {
    TORCH_CHECK_VALUE(device.type() == devices.front().type(),
                      "[cohort] broadcast_coalesced: devices must be of one type, got ", devices.front(), " and ",
                      device);
  }
  for (const auto& tensor : tensors) {
    TORCH_CHECK(tensor.device() == devices.front(), "[cohort] All tensors must be on devices[0]: ", devices.front(),
                ", got one on ", tensor.device());
  }
  std::vector<TensorVector> results(devices.size());
  results.front() = tensors;
  for (const auto& group : torch::utils::take_tensors(tensors, buffer_size)) {
    const bool is_sparse = group.tensors.front().is_sparse();
    const auto flat = is_sparse ? at::Tensor() : torch::utils::flatten_dense_tensors(group.tensors);
    for (size_t k = 1; k < devices.size(); ++k) {
      TensorVector copies;
      for (const auto& tensor : group.tensors) {
        if (is_sparse) copies.push_back(copied_to(tensor, devices[k]));
      }
      if (!is_sparse) copies = split_like(copied_to(flat, devices[k]), group.tensors);
      results[k].insert(results[k].end(), copies.begin(), copies.end());
    }
  }
  for (size_t k = 1; k < devices.size(); ++k) torch::utils::reorder_tensors_like(results[k], tensors);
  return results;
}

at::Tensor reduce_add(const TensorVector& tensors, const c10::Device& destination) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK_VALUE(!tensors.empty(), "[cohort] reduce_add needs at least one tensor");
  for (size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK_VALUE(tensors[i].sizes() == tensors.front().sizes(), "input ", i, " has invalid size: got ",
                      c10::Join("x", tensors[i].sizes()), ", but expected ", c10::Join("x", tensors.front().sizes()));
  }
  const auto root = std::find_if(tensors.begin(), tensors.end(),
                                 [&](const at::Tensor& tensor) { return tensor.device() == destination; });
  TORCH_CHECK(root != tensors.end(),
              "reduce_add expects destination to be on the same device with one of the tensors, got ", destination);
  at::Tensor sum = *root;
  for (auto tensor = tensors.begin(); tensor != tensors.end(); ++tensor) {
    if (tensor == root) continue;
    const auto part = tensor->to(destination, /*non_blocking=*/!destination.is_cpu());
    sum = sum.is_same(*root) ? sum + part : sum.add_(part);
  }
  return sum;
}

TensorVector reduce_add_coalesced(const std::vector<TensorVector>& inputs, const c10::Device& destination,
                                  size_t buffer_size) {
  const at::NoGradGuard no_grad;
  check_buffer_size(buffer_size);
  TORCH_CHECK_VALUE(!inputs.empty(), "[cohort] reduce_add_coalesced needs the tensors of at least one device");
  std::vector<TensorVector> dense(inputs.size());
  TensorVector sums;
  TensorVector order;
  for (size_t i = 0; i < inputs.front().size(); ++i) {
    TensorVector at_devices;
    for (const auto& of_device : inputs) {
      TORCH_CHECK_VALUE(of_device.size() == inputs.front().size(),
                        "[cohort] reduce_add_coalesced: devices have different numbers of tensors, ",
                        inputs.front().size(), " and ", of_device.size());
      at_devices.push_back(of_device[i]);
      check_alike(at_devices.front(), of_device[i]);
    }
    if (std::all_of(at_devices.begin(), at_devices.end(),
                    [](const at::Tensor& tensor) { return tensor.is_sparse(); })) {
      sums.push_back(reduce_add(at_devices, destination));
      order.push_back(at_devices.front());
      continue;
    }
    for (size_t k = 0; k < inputs.size(); ++k) {
      dense[k].push_back(at_devices[k].is_sparse() ? at_devices[k].to_dense() : at_devices[k]);
      TORCH_CHECK_VALUE(dense[k].back().sizes() == dense.front().back().sizes(), "input ", k, " has invalid size: got ",
                        c10::Join("x", dense[k].back().sizes()), ", but expected ",
                        c10::Join("x", dense.front().back().sizes()));
    }
    order.push_back(dense.front().back());
  }
  std::vector<std::vector<torch::utils::TensorGroup>> groups;
  for (const auto& tensors : dense) groups.push_back(torch::utils::take_tensors(tensors, buffer_size));
  for (size_t g = 0; g < groups.front().size(); ++g) {
    TensorVector flat;
    for (const auto& of_device : groups) flat.push_back(torch::utils::flatten_dense_tensors(of_device.at(g).tensors));
    const auto parts = split_like(reduce_add(flat, destination), groups.front()[g].tensors);
    sums.insert(sums.end(), parts.begin(), parts.end());
  }
  torch::utils::reorder_tensors_like(sums, order);
  return sums;
}

}  // namespace cohort::nn::parallel
