/// UnusedParameters: which parameters a step does not use, here and on any rank, and the gradients that those keep. See [Note:
/// unused parameters] in overlap_engine.h.
/// Thread-safety: none; the engine's lock.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/parallel/ddp/engine.h"
#include "cohort/parallel/ddp/saved_gradients.h"
#include "cohort/parallel/ddp/unused.h"
#include "cohort/parallel/ddp/use_counts.h"

namespace cohort::ddp {

class UnusedParameters {
 public:
  /// `input` must outlive this.
  explicit UnusedParameters(const EngineInput& input);

  /// Each step's graph is searched (find_unused_parameters).
  bool is_searched() const { return policy_ == Policy::kSearched; }
  /// A step may leave parameters unused.
  bool is_allowed() const { return policy_ != Policy::kRefused; }

  /// A step begins. Searches the graph of `outputs`, if steps are searched; warns where all parameters are used.
  void prepare(const std::vector<at::Tensor>& outputs);
  /// Parameter `index` has got a gradient; without a reduction (no_sync()) it counts for the next one.
  void note_use(size_t index) {
    if (is_allowed()) is_used_here_[index] = 1;
  }
  /// Those that this rank's step leaves unused, as far as is known.
  const std::vector<size_t>& here() const { return unused_; }
  void set_here(std::vector<size_t> unused) { unused_ = std::move(unused); }
  /// True once a step: those known when it began are to be marked.
  bool begin_marking() { return !std::exchange(are_marked_, true); }
  /// Nobody's gradient is among these, so that they need no reduction (skip_all_reduce_unused_params).
  bool may_skip(const std::vector<size_t>& indices) const;

  /// Begins to add up over the ranks which parameters are used. Collective if `all_reduce` is.
  void count(const UseCounts::AllReduce& all_reduce);
  void wait_for_counts() { counts_.wait(); }
  /// Waits for the counts.
  bool is_unused_everywhere(size_t index);

  /// Keeps the gradient that unused parameter `index` has before the reduction.
  void save(size_t index);
  /// Gives the saved ones back to parameters that no rank has used. Waits for the counts.
  void restore();

  void finish();
  /// This rank has no data.
  void forget_uses();
  void forget();

 private:
  enum class Policy : uint8_t {
    kRefused,
    kSearched,  ///< in each step
    kLearned    ///< once, of a static graph
  };
  static Policy policy_of(const ReducerOptions& options);

  const EngineInput& input_;
  const Policy policy_;
  std::optional<UnusedSearch> search_;
  std::vector<size_t> unused_;
  bool are_marked_ = false;
  std::vector<char> is_used_here_;
  UseCounts counts_;
  SavedGradients saved_;
};

}  // namespace cohort::ddp
