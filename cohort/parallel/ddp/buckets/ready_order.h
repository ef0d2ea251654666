/// ReadyOrder: the order in which gradients became ready in a step, from which buckets are rebuilt, once. Where each step is
/// searched for unused parameters they never are, since another step may use others.
/// Thread-safety: none; the engine's lock.
#pragma once

#include <cstddef>
#include <vector>

#include "cohort/parallel/ddp/buckets/bucket_plan.h"
#include "cohort/parallel/ddp/buckets/engine_input.h"

namespace cohort::ddp {

class ReadyOrder {
 public:
  /// `input` must outlive this.
  explicit ReadyOrder(const EngineInput& input)
      : input_(input), is_allowed_(!input.options.find_unused_parameters || input.options.static_graph) {}

  /// Buckets are still to be rebuilt.
  bool is_wanted() const { return is_allowed_ && !has_rebuilt_; }
  bool has_rebuilt() const { return has_rebuilt_; }
  bool is_empty() const { return order_.empty(); }
  bool is_complete() const { return is_wanted() && order_.size() == input_.parameters.size(); }

  /// A step begins.
  void clear() { order_.clear(); }
  void note(size_t index) {
    if (is_wanted()) order_.push_back(index);
  }
  void note_all(const std::vector<size_t>& indices) {
    for (const size_t index : indices) note(index);
  }
  /// All parameters: the other ranks have an order, and theirs will count.
  void note_any_order();

  /// The buckets in this order, those of rank 0 on all ranks. Requires is_complete(). Collective.
  BucketPlan rebuild();
  /// Buckets are those of the first plan again.
  void forget() {
    has_rebuilt_ = false;
    order_.clear();
  }

 private:
  const EngineInput& input_;
  const bool is_allowed_;
  bool has_rebuilt_ = false;
  std::vector<size_t> order_;
};

}  // namespace cohort::ddp
