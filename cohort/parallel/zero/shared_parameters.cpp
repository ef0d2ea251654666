#include "cohort/parallel/zero/shared_parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <memory>
#include <string>
#include <utility>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/common_memory.h"
#include "cohort/comm/collectives/shm_empty.h"
#include "cohort/parallel/fsdp/host/write_guard.h"
#include "cohort/parallel/zero/purpose.h"

namespace cohort::zero {
namespace {

constexpr size_t kSharedAlignment = 64;

size_t shared_bytes(const at::Tensor& param) {
  const auto bytes = static_cast<size_t>(param.numel()) * param.element_size();
  return (bytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
}

// `owners`: objects that must live as long as the tensor's memory.
at::Tensor shared_like(const at::Tensor& param, const std::byte* data,
                       std::vector<std::shared_ptr<const void>> owners) {
  const auto strides = param.is_non_overlapping_and_dense() ? param.strides().vec()
                                                            : at::empty(param.sizes(), at::kMeta).strides().vec();
  return at::from_blob(
      const_cast<std::byte*>(data), param.sizes(), strides, [owners = std::move(owners)](void*) {}, param.options());
}

std::string write_text(size_t place, int owner) {
  return "[cohort] error: a write to parameter " + std::to_string(place) +
         " of a ZeroRedundancyOptimizer with one_memory, " + "which rank " + std::to_string(owner) +
         " owns, so only that rank may write it\n"
         "  hint: load and change parameters before you make the optimizer, or leave one_memory off\n";
}

std::string child_text(size_t place) {
  return "[cohort] error: a forked process has no parameter " + std::to_string(place) +
         " of a ZeroRedundancyOptimizer with one_memory: the ranks of this host share it, but not the processes that "
         "they fork\n"
         "  hint: give the child a copy that was made before the fork: parameter.detach().clone()\n";
}

}  // namespace

bool SharedParameters::are_possible(const Group& group, c10::Device device) {
  return device.is_cpu() && comm::has_shared_memory(group);
}

void SharedParameters::add(const std::vector<at::Tensor>& params,
                           const std::function<int(const at::Tensor&)>& owner_of) {
  size_t num_bytes = 0;
  std::vector<std::pair<size_t, size_t>> places;  // of the parameter, and of its first byte
  for (size_t i = 0; i < params.size(); ++i) {
    if (params[i].numel() == 0 || known_.contains(params[i].unsafeGetTensorImpl())) continue;
    places.emplace_back(i, num_bytes);
    num_bytes += shared_bytes(params[i]);
  }
  if (places.empty()) return;
  const at::NoGradGuard no_grad;
  const auto memory = comm::make_common_memory(num_bytes, /*has_pages=*/true, group_);
  std::vector<fsdp::WriteGuard::Range> ranges;
  for (const auto& [i, offset] : places) {
    const int owner = owner_of(params[i]);
    const bool is_own = owner == group_->getRank();
    const auto* const begin = (is_own ? memory.writable->data() : memory.readable->data()) + offset;
    ranges.push_back({begin, shared_bytes(params[i]), {}, write_text(i, owner), child_text(i)});
  }
  const auto guard = std::make_shared<fsdp::WriteGuard>(ranges);
  for (const auto& [i, offset] : places) {
    const auto& param = params[i];
    known_.insert(param.unsafeGetTensorImpl());
    if (owner_of(param) == group_->getRank()) {
      const auto shared = shared_like(param, memory.writable->data() + offset, {memory.writable, guard});
      shared.copy_(param);
      param.set_data(shared);
    } else {
      param.set_data(shared_like(param, memory.readable->data() + offset, {memory.readable, guard}));
    }
  }
  meet();
}

void SharedParameters::meet() const {
  const comm::CalledFor purpose(kParameterExchange);
  barrier({.group = group_});
}

}  // namespace cohort::zero
