#include "cohort/comm/collectives/arguments.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "cohort/base/log/log.h"
#include "cohort/comm/backend/per_device_backend.h"
#include "cohort/comm/tensors/plain_tensor.h"
#include "cohort/comm/tensors/takes_complex.h"

namespace cohort::comm {
namespace {

bool needs_conversion(const c10d::Backend& backend, const at::Tensor& tensor) {
  if (!tensor.defined() || (!tensor.is_complex() && !is_lazy(tensor))) return false;
  return !dynamic_cast<const TakesComplex*>(find_serving(backend, tensor.device().type()));
}

template <class Convert>
TensorList each(const TensorList& tensors, Convert convert) {
  TensorList result;
  result.reserve(tensors.size());
  for (const auto& tensor : tensors) result.push_back(convert(tensor));
  return result;
}

}  // namespace

bool skips(const Group& group, const char* operation) {
  if (is_member(group)) return false;
  base::warn_once("Running " + std::string(operation) + " on global rank " + std::to_string(get_rank()) +
                  " which does not belong to the given group.");
  return true;
}

void check_alike(const TensorList& tensors, const char* operation) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK_VALUE(tensors[i].defined(), "[cohort] Invalid tensor for ", operation, ": number ", i,
                      " of the list is undefined");
    TORCH_CHECK_VALUE(tensors[i].device() == tensors[0].device(), "[cohort] ", operation,
                      " needs tensors of one device, got ", tensors[0].device(), " and ", tensors[i].device());
    TORCH_CHECK_VALUE(tensors[i].scalar_type() == tensors[0].scalar_type(), "[cohort] ", operation,
                      " needs tensors of one dtype, got ", tensors[0].scalar_type(), " and ", tensors[i].scalar_type());
  }
}

// Without a list, which would cost more than the check.
void check_alike(const at::Tensor& first, const at::Tensor& second, const char* operation) {
  const bool are_alike = first.defined() && second.defined() && first.device() == second.device() &&
                         first.scalar_type() == second.scalar_type();
  if (!are_alike) check_alike(TensorList{first, second}, operation);
}

int to_group_rank(const Group& group, RankArgument rank) {
  if (!rank.in_group && group && group != default_group()) return get_group_rank(group, rank.value);
  const int size = resolve(group)->getSize();
  TORCH_CHECK_VALUE(rank.value >= 0 && rank.value < size, rank.in_group ? "Group rank " : "Rank ", rank.value,
                    " is out of range. Valid ranks are 0 to ", size - 1, " (world_size=", size, ")");
  return rank.value;
}

at::Tensor sent(const c10d::Backend& backend, const at::Tensor& tensor) {
  if (!needs_conversion(backend, tensor)) return tensor;
  const auto plain = is_lazy(tensor) ? plain_copy(tensor) : tensor;
  return plain.is_complex() ? at::view_as_real(plain) : plain;
}

at::Tensor written(const c10d::Backend& backend, const at::Tensor& tensor, const char* operation) {
  if (!needs_conversion(backend, tensor)) return tensor;
  TORCH_CHECK_VALUE(!is_lazy(tensor), "[cohort] ", operation, " cannot write to a lazily ",
                    tensor.is_conj() ? "conjugated" : "negated", " tensor on ", tensor.device(),
                    "\n  hint: give it tensor.resolve_conj().resolve_neg(), and read the result there");
  return at::view_as_real(tensor);
}

TensorList sent(const c10d::Backend& backend, const TensorList& tensors) {
  return each(tensors, [&](const at::Tensor& tensor) { return sent(backend, tensor); });
}

TensorList written(const c10d::Backend& backend, const TensorList& tensors, const char* operation) {
  return each(tensors, [&](const at::Tensor& tensor) { return written(backend, tensor, operation); });
}

TensorList sent_alone(const c10d::Backend& backend, const at::Tensor& tensor) {
  TensorList list;
  list.push_back(sent(backend, tensor));
  return list;
}

TensorList written_alone(const c10d::Backend& backend, const at::Tensor& tensor, const char* operation) {
  TensorList list;
  list.push_back(written(backend, tensor, operation));
  return list;
}

WorkPtr finish(WorkPtr work, bool async_op) {
  if (!async_op && work) work->wait();
  return work;
}

}  // namespace cohort::comm
