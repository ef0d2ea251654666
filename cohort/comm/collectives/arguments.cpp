#include "cohort/comm/collectives/arguments.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "cohort/base/log.h"
#include "cohort/comm/group/world.h"

namespace cohort::comm {
namespace {

std::string device_name(c10::DeviceType type) { return c10::DeviceTypeName(type, /*lower_case=*/true); }

std::string where_group_works(const Group& group) {
  const auto* record = world().default_group ? world().find(group) : nullptr;
  return record ? "group \"" + record->description + "\" has backend \"" + record->backend + "\""
                : "the group has no backend";
}

}  // namespace

bool skips(const Group& group, const char* operation) {
  if (is_member(group)) return false;
  base::warn_once("Running " + std::string(operation) + " on global rank " + std::to_string(get_rank()) +
                  " which does not belong to the given group.");
  return true;
}

Group resolve(const Group& group) { return group ? group : default_group(); }

c10::intrusive_ptr<c10d::Backend> backend_for(const Group& group, const at::Tensor& tensor, const char* operation) {
  TORCH_CHECK_VALUE(tensor.defined(), "Invalid tensor for ", operation, ": it is undefined");
  const auto owner = resolve(group);
  const auto type = tensor.device().type();
  try {
    return owner->getBackend(type);
  } catch (const c10::Error&) {
    // The engine's text names neither the group nor the way out.
  }
  TORCH_CHECK_VALUE(false, operation, " got a tensor on ", device_name(type), ", but ", where_group_works(owner),
                    ", which does not serve that device; move the tensor, or give a backend for both devices, such as "
                    "\"cpu:gloo,cuda:nccl\", to init_process_group");
}

c10::intrusive_ptr<c10d::Backend> any_backend(const Group& group) {
  const auto owner = resolve(group);
  const auto devices = owner->getDeviceTypes();
  TORCH_CHECK_VALUE(!devices.empty(), "the group has no backend");
  for (const auto& device : devices) {
    if (device.is_cpu()) return owner->getBackend(device.type());
  }
  return owner->getBackend(devices.front().type());
}

void check_alike(const TensorList& tensors, const char* operation) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK_VALUE(tensors[i].defined(), "Invalid tensor for ", operation, ": number ", i,
                      " of the list is undefined");
    TORCH_CHECK_VALUE(tensors[i].device() == tensors[0].device(), operation, " needs tensors of one device, got ",
                      tensors[0].device(), " and ", tensors[i].device());
    TORCH_CHECK_VALUE(tensors[i].scalar_type() == tensors[0].scalar_type(), operation,
                      " needs tensors of one dtype, got ", tensors[0].scalar_type(), " and ", tensors[i].scalar_type());
  }
}

int to_group_rank(const Group& group, RankArgument rank) {
  if (!rank.in_group && group && group != default_group()) return get_group_rank(group, rank.value);
  const int size = resolve(group)->getSize();
  TORCH_CHECK_VALUE(rank.value >= 0 && rank.value < size, rank.in_group ? "Group rank " : "Rank ", rank.value,
                    " is out of range. Valid ranks are 0 to ", size - 1, " (world_size=", size, ")");
  return rank.value;
}

at::Tensor as_real(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

TensorList as_real(const TensorList& tensors) {
  TensorList result;
  result.reserve(tensors.size());
  for (const auto& tensor : tensors) result.push_back(as_real(tensor));
  return result;
}

WorkPtr finish(WorkPtr work, bool async_op) {
  if (!async_op && work) work->wait();
  return work;
}

}  // namespace cohort::comm
