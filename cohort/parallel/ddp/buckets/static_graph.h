/// StaticGraph: the number of gradients that each parameter gets, learned in the first step (ReducerOptions::static_graph). That
/// step is reduced at the end of backward; in later steps a parameter's last gradient completes it.
///
/// A rank without data (see Join) takes part when the ranks exchange which parameters they use, and learns its own graph later.
/// Thread-safety: none; the engine's lock protects it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cohort::ddp {

class StaticGraph {
 public:
  /// `is_enabled`: false if the graph is not static; then nothing is learned.
  StaticGraph(bool is_enabled, size_t num_parameters)
      : is_enabled_(is_enabled), uses_(is_enabled ? num_parameters : 0) {}

  /// Whether this step's gradients are counted, and reduced at the end of backward.
  bool is_learning() const { return is_enabled_ && knowledge_ != Knowledge::kComplete; }
  /// Begins a step.
  void prepare() {
    if (is_learning()) {
      std::fill(uses_.begin(), uses_.end(), 0);
      has_queued_finish_ = false;
    }
    uses_left_ = uses_;
  }

  /// While learning: counts a gradient of parameter `index`.
  void count(size_t index) { ++uses_[index]; }
  bool is_used(size_t index) const { return uses_[index] > 0; }
  /// True for the first caller of a step: the end of the step must be queued once.
  bool queue_finish() { return !std::exchange(has_queued_finish_, true); }
  /// Called before the ranks exchange which parameters they use. False if they have done so before.
  bool share() {
    if (!is_enabled_ || knowledge_ != Knowledge::kNone) return false;
    knowledge_ = Knowledge::kOfOthers;
    return true;
  }
  void end_learning() { knowledge_ = Knowledge::kComplete; }

  /// After learning: whether parameter `index` has already had all its gradients of this step.
  bool is_extra(size_t index) const { return is_enabled_ && uses_left_[index] == 0; }
  /// Notes a gradient. Returns whether it was the parameter's last one in this step.
  bool take_last(size_t index) { return !is_enabled_ || --uses_left_[index] == 0; }

  void forget() { knowledge_ = Knowledge::kNone; }

 private:
  enum class Knowledge : uint8_t {
    kNone,
    kOfOthers,  ///< the ranks with data have exchanged theirs
    kComplete   ///< and this rank has learned its own
  };

  bool is_enabled_;
  Knowledge knowledge_ = Knowledge::kNone;
  bool has_queued_finish_ = false;
  std::vector<int> uses_;       // gradients per parameter in the step in which the graph is learned
  std::vector<int> uses_left_;  // still to come in this step
};

}  // namespace cohort::ddp
