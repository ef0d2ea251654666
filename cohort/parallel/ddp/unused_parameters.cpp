#include "cohort/parallel/ddp/unused_parameters.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>

#include "cohort/comm/group/job_warning.h"
#include "cohort/parallel/ddp/reducer_errors.h"

namespace cohort::ddp {

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
  if (input_.gradient_dtype) search_.emplace(input_.parameters);  // another dtype is another accumulator
  unused_ = search_->unused(outputs);
  if (unused_.empty()) comm::warn_once_per_job(none_unused_message(input_.reader));
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
