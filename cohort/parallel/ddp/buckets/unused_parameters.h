/// UnusedParameters: which parameters a step does not use, here and on any rank, and the gradients that those keep. See [Note:
/// unused parameters] in overlap_engine.h.
/// Thread-safety: none; the engine's lock.
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

  /// Begins to add up over the ranks which parameters were used, as int32 on `device`. Collective if `all_reduce` is.
  void begin(const std::vector<char>& is_used, c10::Device device, const AllReduce& all_reduce);
  /// The number of ranks that used parameter `index`, of the sum begun last; waits for it when first asked.
  int of(size_t index);
  /// Waits for the sum, if there is one that nobody waited for.
  void wait();
  /// The next question is about the sum that is begun next.
  void forget() { counts_.clear(); }

 private:
  at::Tensor sums_;
  c10::intrusive_ptr<c10d::Work> work_;
  std::vector<int> counts_;  // empty until sums_ is known
};

/// The gradients that parameters had before a step in which this rank did not use them.
class SavedGradients {
 public:
  /// Copies `gradient` of parameter number `index`, which is of `dtype`, in the current stream. An undefined one is not kept.
  void add(size_t index, const at::Tensor& gradient, at::ScalarType dtype);
  /// Gives the saved gradients back, bit for bit, to those parameters for which `is_wanted(index)` holds.
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
