/// ReadyOrder: the order in which gradients became ready in a step. Buckets are rebuilt in this order, once. If each step is
/// searched for unused parameters they are never rebuilt, since another step may use other parameters.
/// Thread-safety: none; the engine's lock protects it.
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

  /// Whether buckets are still to be rebuilt.
  bool is_wanted() const { return is_allowed_ && !has_rebuilt_; }
  bool has_rebuilt() const { return has_rebuilt_; }
  bool is_empty() const { return order_.empty(); }
  bool is_complete() const { return is_wanted() && order_.size() == input_.parameters.size(); }

  /// Begins a step.
  void clear() { order_.clear(); }
  void note(size_t index) {
    if (is_wanted()) order_.push_back(index);
  }
  void note_all(const std::vector<size_t>& indices) {
    for (const size_t index : indices) note(index);
  }
  /// Notes all parameters in any order: the other ranks have an order, and theirs will count.
  void note_any_order();

  /// Returns buckets in this order; rank 0's, on all ranks. Requires is_complete(). Collective.
  BucketPlan rebuild();
  /// Notes that buckets are those of the first plan again.
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
