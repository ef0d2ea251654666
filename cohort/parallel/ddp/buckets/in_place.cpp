#include "cohort/parallel/ddp/buckets/in_place.h"

#include <ATen/ATen.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <atomic>

#include "cohort/comm/collectives/shm_empty.h"

namespace cohort::ddp {
namespace {

std::atomic<size_t> least_bytes = size_t{64} << 10;

bool wants_buckets(const ReducerOptions& options) {
  return options.gradient_as_bucket_view || options.batched_grad_copy || options.process_group->getSize() == 1;
}

// A dimension of one element may have any stride.
bool has_order_of(const at::Tensor& gradient, const at::Tensor& layout) {
  if (gradient.sizes() != layout.sizes()) return false;
  for (int64_t i = 0; i < gradient.dim(); ++i) {
    if (gradient.size(i) > 1 && gradient.stride(i) != layout.stride(i)) return false;
  }
  return true;
}

}  // namespace

std::vector<char> find_in_place(const std::vector<at::Tensor>& parameters, const std::vector<ParameterInfo>& infos,
                                const ReducerOptions& options) {
  std::vector<char> flags(parameters.size());
  if (wants_buckets(options) || !comm::shares_tensors(options.process_group)) return flags;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& info = infos[i];
    const bool keeps_bits = info.dtype == at::kFloat || info.dtype == at::kDouble;
    flags[i] = keeps_bits && info.device.is_cpu() && !info.is_sparse && info.num_bytes >= least_bytes &&
               info.num_bytes > 0 && parameters[i].is_non_overlapping_and_dense();
  }
  return flags;
}

bool can_be_reduced_in_place(const at::Tensor& gradient, const at::Tensor& layout) {
  return !at::isTensorSubclassLike(gradient) && !gradient._is_zerotensor() && !gradient.is_neg() &&
         gradient.layout() == at::kStrided && gradient.dtype() == layout.dtype() && !gradient.requires_grad() &&
         gradient.use_count() == 1 && gradient.storage().use_count() == 1 && has_order_of(gradient, layout);
}

at::Tensor layout_of(const at::Tensor& parameter) {
  return at::empty_strided(parameter.sizes(), parameter.strides(),
                           parameter.options().device(at::kMeta).requires_grad(false));
}

at::Tensor in_order_of_memory(const at::Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : tensor.as_strided({tensor.numel()}, {1});
}

void set_least_bytes_in_place(size_t num_bytes) { least_bytes = num_bytes; }

}  // namespace cohort::ddp
