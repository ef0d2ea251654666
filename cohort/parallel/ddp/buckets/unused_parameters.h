/// UnusedParameters: the parameters that a step does not use, on this rank and on all ranks, and the gradients that those keep.
/// See [Note: unused parameters] in overlap_engine.h.
/// Thread-safety: none; the engine's lock protects it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/parallel/ddp/buckets/engine_input.h"
#include "cohort/parallel/ddp/buckets/unused.h"

namespace cohort::ddp {

/// The number of ranks that have used each parameter.
class UseCounts {
 public:
  using AllReduce = std::function<c10::intrusive_ptr<c10d::Work>(const at::Tensor&)>;

  /// Begins to sum over the ranks which parameters were used, as int32 on `device`. Collective if `all_reduce` is.
  void begin(const std::vector<char>& is_used, c10::Device device, const AllReduce& all_reduce);
  /// Returns the number of ranks that used parameter `index`, from the last sum; waits for the sum at the first call.
  int of(size_t index);
  /// Waits for the sum, if one was begun and nobody has waited for it.
  void wait();
  /// Drops the counts: the next question is about the next sum.
  void forget() { counts_.clear(); }

 private:
  at::Tensor sums_;
  c10::intrusive_ptr<c10d::Work> work_;
  std::vector<int> counts_;  // empty until sums_ is known
};

/// The gradients that parameters had before a step in which this rank did not use them.
class SavedGradients {
 public:
  /// Copies `gradient` of parameter number `index`, which has dtype `dtype`, in the current stream. Skips an undefined gradient.
  void add(size_t index, const at::Tensor& gradient, at::ScalarType dtype);
  /// Restores the saved gradients, bit for bit, of those parameters for which `is_wanted(index)` holds.
  void restore(const std::vector<at::Tensor>& parameters, const std::function<bool(size_t)>& is_wanted);
  void clear() { saved_.clear(); }

 private:
  struct Saved {
    size_t index;
    at::Tensor gradient;
    at::Tensor values;
  };
  std::vector<Saved> saved_;
};

class UnusedParameters {
 public:
  /// `input` must outlive this.
  explicit UnusedParameters(const EngineInput& input);

  /// Whether each step's graph is searched (find_unused_parameters).
  bool is_searched() const { return policy_ == Policy::kSearched; }
  /// Whether a step may leave parameters unused.
  bool is_allowed() const { return policy_ != Policy::kRefused; }

  /// Begins a step. Searches the graph of `outputs` if steps are searched; warns if all parameters are used.
  void prepare(const std::vector<at::Tensor>& outputs);
  /// Notes a gradient of parameter `index`; without a reduction (no_sync()) it counts for the next one.
  void note_use(size_t index) {
    if (is_allowed()) is_used_here_[index] = 1;
  }
  /// The parameters that this rank's step leaves unused, as far as is known.
  const std::vector<size_t>& here() const { return unused_; }
  void set_here(std::vector<size_t> unused) { unused_ = std::move(unused); }
  /// True once a step: the parameters known to be unused at its begin must be marked.
  bool begin_marking() { return !std::exchange(are_marked_, true); }
  /// Whether no rank has a gradient for these, so that they need no reduction (skip_all_reduce_unused_params).
  bool may_skip(const std::vector<size_t>& indices) const;

  /// Begins to sum over the ranks which parameters are used. Collective if `all_reduce` is.
  void count(const UseCounts::AllReduce& all_reduce);
  void wait_for_counts() { counts_.wait(); }
  /// Waits for the counts.
  bool is_unused_everywhere(size_t index);

  /// Keeps the gradient that unused parameter `index` has before the reduction.
  void save(size_t index);
  /// Restores the saved gradients of parameters that no rank has used. Waits for the counts.
  void restore();

  void finish();
  /// Forgets the uses, on a rank without data.
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
