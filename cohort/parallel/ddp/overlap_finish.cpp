// The end of a step of OverlapEngine: waits for the reductions, and hands the results out.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "cohort/parallel/ddp/bucket_memory.h"
#include "cohort/parallel/ddp/hook_result.h"
#include "cohort/parallel/ddp/overlap_engine.h"
#include "cohort/parallel/ddp/reducer_errors.h"
#include "cohort/parallel/ddp/unfinished_step.h"

namespace cohort::ddp {

// The end of the backward pass that begins at one of the outputs. A pass within it, such as a checkpointed layer's, may be the
// first to bring a gradient, and ends earlier.
void OverlapEngine::watch(const std::vector<at::Tensor>& outputs) {
  for (const auto& output : outputs) {
    if (!output.requires_grad() || output.is_leaf()) continue;
    output.register_hook([this, alive = std::weak_ptr(alive_)](const at::Tensor&) {
      if (alive.expired()) return;
      const std::lock_guard lock(mutex_);
      if (is_expecting_ && is_first_static_step()) queue_first_finish();
    });
  }
}

void OverlapEngine::queue_first_finish() {
  if (std::exchange(has_queued_first_finish_, true)) return;
  torch::autograd::Engine::get_default_engine().queue_callback([this] { finish_first_static_step(); });
}

void OverlapEngine::queue_finish() {
  torch::autograd::Engine::get_default_engine().queue_callback([this] { finish(); });
}

void OverlapEngine::finalize() {
  if (!is_expecting_) return;
  TORCH_CHECK(failure_.empty(), failure_);
  if (is_first_static_step()) return finish_first_static_step();
  if (!counts_uses()) throw_unfinished(options_, reader_, "finalize() cannot end the step", is_ready_);
  mark_found_unused();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!is_ready_[i]) mark_ready(i, /*is_used=*/false);
  }
  finish_buckets();
}

void OverlapEngine::finish_first_static_step() {
  if (!is_expecting_) return;
  unused_.clear();
  const bool is_late = std::exchange(has_shared_graph_, true);
  if (!is_late) reduce_use_counts();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (uses_[i] == 0) unused_.push_back(i);
    mark_ready(i, uses_[i] > 0);
  }
  finish_buckets();
  has_learned_graph_ = true;
  // The others have had an order since a step that was shadowed here.
  if (is_late && should_rebuild()) note_any_order();
}

void OverlapEngine::note_any_order() {
  ready_order_.clear();
  for (size_t i = 0; i < parameters_.size(); ++i) ready_order_.push_back(i);
}

// After gradients were marked outside of on_gradient().
void OverlapEngine::finish_buckets() {
  if (hook_) {
    std::unique_lock lock(mutex_);
    run_hook(lock);
  }
  finish();
}

void OverlapEngine::reduce_use_counts() {
  if (world_size_ == 1) return;
  use_counts_.begin(is_used_here_, parameters_.front().device(),
                    [this](const at::Tensor& uses) { return all_reduce(uses); });
}

bool OverlapEngine::is_unused_everywhere(size_t index) {
  if (is_used_here_[index]) return false;
  return world_size_ == 1 || use_counts_.of(index) == 0;
}

void OverlapEngine::finish() {
  is_expecting_ = false;
  if (should_rebuild() && options_.static_graph && !is_first_static_step()) {
    ready_order_.insert(ready_order_.end(), unused_.begin(), unused_.end());
  }
  try {
    if (fills_buckets()) {
      hand_out_gradients();
    } else if (observer_) {
      for (const auto& indices : plan_) {
        std::vector<size_t> given;
        std::copy_if(indices.begin(), indices.end(), std::back_inserter(given),
                     [this](size_t index) { return !counts_uses() || !is_unused_everywhere(index); });
        observer_->on_bucket(given);
      }
    }
    if (observer_) observer_->on_end();
    wait_for_all(futures_);
  } catch (const std::exception& error) {
    note_failure(error);
    abandon_gradients();
    throw;
  }
  times_.end_step();
  replaced_.clear();
  saved_.clear();
  if (searches_unused()) std::fill(is_used_here_.begin(), is_used_here_.end(), 0);
  is_unfinished_ = false;
}

// In the order in which the other ranks' step calls them.
void OverlapEngine::shadow_step() {
  std::fill(is_used_here_.begin(), is_used_here_.end(), 0);
  const bool is_first = options_.static_graph && !std::exchange(has_shared_graph_, true);
  if (is_first) shadow_use_counts();
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i].has_in_place()) {
      reduce_parts(buckets_[i].zero_parts(parameters_))->wait();
      continue;
    }
    const auto zeros = zeros_of_bucket(parameters_, plan_[i], infos_[plan_[i].front()].is_sparse, gradient_dtype_);
    if (hook_) {
      result_of(call_hook(i, zeros));
    } else if (world_size_ > 1) {
      all_reduce(zeros)->wait();
    }
  }
  if (searches_unused()) shadow_use_counts();
  wait_for_all(futures_);
  if (should_rebuild() && !is_first && ready_order_.empty()) note_any_order();
}

void OverlapEngine::shadow_use_counts() {
  reduce_use_counts();
  use_counts_.wait();
}

// Nobody's gradient is in it.
bool OverlapEngine::is_skipped(const Bucket& bucket) const {
  if (!options_.skip_all_reduce_unused_params) return false;
  return std::all_of(bucket.indices().begin(), bucket.indices().end(), [this](size_t index) {
    return std::find(unused_.begin(), unused_.end(), index) != unused_.end();
  });
}

void OverlapEngine::await_reduction(Bucket& bucket) {
  if (is_skipped(bucket)) return;
  if (hook_) return bucket.accept(result_of(std::exchange(bucket.future, {})));
  bucket.work->wait();
  if (bucket.is_sparse()) bucket.accept(bucket.work->result().front());
  bucket.work.reset();
}

void OverlapEngine::hand_out_gradients() {
  const at::NoGradGuard no_grad;
  if (runs_in_caller_ && searches_unused()) reduce_rest();
  for (size_t i = 0; i < buckets_.size(); ++i) {
    auto& bucket = buckets_[i];
    reduce_at_end(i);  // one after the other: who reads the gradients finds them in the cache
    await_reduction(bucket);
    if (!is_skipped(bucket)) times_.finished(i);
    if (bucket.is_sparse()) continue;
    used_in_current_stream(bucket.contents());
    used_in_current_stream(bucket.gradients());  // by whoever reads them
    std::vector<size_t> given;
    for (size_t slot = 0; slot < bucket.indices().size(); ++slot) {
      const auto index = bucket.indices()[slot];
      if (counts_uses() && is_unused_everywhere(index)) {
        bucket.forget(slot);
        continue;
      }
      bucket.give(slot, parameters_[index]);
      if (observer_) given.push_back(index);
    }
    if (observer_) observer_->on_bucket(given);
  }
  saved_.restore(parameters_, [this](size_t index) { return is_unused_everywhere(index); });
  use_counts_.wait();
}

}  // namespace cohort::ddp
