#include "cohort/parallel/ddp/buckets/unused_parameters.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <utility>

#include "cohort/comm/group/job_warning.h"
#include "cohort/parallel/ddp/buckets/device_streams.h"
#include "cohort/parallel/ddp/settings/reducer_errors.h"

namespace cohort::ddp {

void UseCounts::begin(const std::vector<char>& is_used, c10::Device device, const AllReduce& all_reduce) {
  const std::vector<int> used(is_used.begin(), is_used.end());
  sums_ = at::tensor(used, at::kInt).to(device);
  work_ = all_reduce(sums_);
}

int UseCounts::of(size_t index) {
  if (counts_.empty()) {
    wait();
    const auto on_cpu = sums_.to(at::kCPU);
    counts_.assign(on_cpu.const_data_ptr<int>(), on_cpu.const_data_ptr<int>() + on_cpu.numel());
  }
  return counts_[index];
}

void UseCounts::wait() {
  if (work_) std::exchange(work_, {})->wait();
}

void SavedGradients::add(size_t index, const at::Tensor& gradient, at::ScalarType dtype) {
  if (gradient.defined()) saved_.push_back({index, gradient.to(dtype), gradient.detach().clone()});
}

void SavedGradients::restore(const std::vector<at::Tensor>& parameters, const std::function<bool(size_t)>& is_wanted) {
  for (auto& saved : saved_) {
    if (!is_wanted(saved.index)) continue;
    saved.gradient.copy_(saved.values);
    used_in_current_stream(saved.values);
    parameters[saved.index].mutable_grad() = saved.gradient;
  }
}

UnusedParameters::Policy UnusedParameters::policy_of(const ReducerOptions& options) {
  if (options.static_graph) return Policy::kLearned;
  return options.find_unused_parameters ? Policy::kSearched : Policy::kRefused;
}

UnusedParameters::UnusedParameters(const EngineInput& input)
    : input_(input), policy_(policy_of(input.options)), is_used_here_(input.parameters.size()) {
  if (is_searched()) search_.emplace(input_.parameters);
}

void UnusedParameters::prepare(const std::vector<at::Tensor>& outputs) {
  are_marked_ = false;
  if (!is_searched()) return;
  counts_.forget();
  unused_.clear();
  if (outputs.empty()) return;
  if (input_.gradient_dtype) search_.emplace(input_.parameters);  // another dtype has another accumulator
  unused_ = search_->unused(outputs);
  if (unused_.empty()) comm::warn_once_per_job(none_unused_message(input_.audience));
}

bool UnusedParameters::may_skip(const std::vector<size_t>& indices) const {
  if (!input_.options.skip_all_reduce_unused_params) return false;
  return std::all_of(indices.begin(), indices.end(), [this](size_t index) {
    return std::find(unused_.begin(), unused_.end(), index) != unused_.end();
  });
}

void UnusedParameters::count(const UseCounts::AllReduce& all_reduce) {
  if (input_.options.process_group->getSize() == 1) return;
  counts_.begin(is_used_here_, input_.parameters.front().device(), all_reduce);
}

bool UnusedParameters::is_unused_everywhere(size_t index) {
  if (is_used_here_[index]) return false;
  return input_.options.process_group->getSize() == 1 || counts_.of(index) == 0;
}

void UnusedParameters::save(size_t index) {
  if (input_.infos[index].is_sparse) return;
  saved_.add(index, input_.parameters[index].grad(), input_.infos[index].dtype);
}

void UnusedParameters::restore() {
  saved_.restore(input_.parameters, [this](size_t index) { return is_unused_everywhere(index); });
  wait_for_counts();
}

void UnusedParameters::finish() {
  saved_.clear();
  if (is_searched()) forget_uses();
}

void UnusedParameters::forget_uses() { std::fill(is_used_here_.begin(), is_used_here_.end(), 0); }

void UnusedParameters::forget() {
  unused_.clear();
  saved_.clear();
  counts_ = {};
  forget_uses();
}

}  // namespace cohort::ddp
