#include "cohort/comm/shm/simple_pair.h"

#include <cstddef>
#include <functional>

#include "cohort/comm/tensors/contiguous_copies.h"

namespace cohort::comm {
namespace {

bool lie_apart(const at::Tensor& first, const at::Tensor& second) {
  const auto* const begin = static_cast<const std::byte*>(first.const_data_ptr());
  const auto* const other = static_cast<const std::byte*>(second.const_data_ptr());
  const std::less_equal<> is_before;
  return is_before(begin + first.nbytes(), other) || is_before(other + second.nbytes(), begin);
}

}  // namespace

bool is_simple(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided && is_plain(tensor);
}

bool is_simple_pair(const at::Tensor& whole, const at::Tensor& part, int world_size) {
  return is_simple(whole) && is_simple(part) && whole.scalar_type() == part.scalar_type() &&
         whole.numel() == part.numel() * world_size && lie_apart(whole, part);
}

}  // namespace cohort::comm
