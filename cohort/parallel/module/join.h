/// Join: training on ranks with different numbers of batches. A rank whose data has ended takes part in the collectives of the
/// others, with contributions that change nothing. Follows torch/distributed/algorithms/join.py.
///
///     {
///       const cohort::Join join({ddp->joinable(), optimizer});   // or, for one wrapper alone, ddp->join()
///       for (const auto& batch : batches) { ... }                // as without it
///     }                                                          // waits here until the data of all ranks has ended
///
/// Join does not know collectives of the program itself, or of modules such as SyncBatchNorm: with these use
/// throw_on_early_termination, which ends the loop on every rank when the data of the first one has ended.
/// Thread-safety: as the joinables.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort {

struct JoinOptions {
  /// Divides gradients by the number of all ranks, so that every sample counts equally. If false, divides by the number of ranks
  /// that still have data.
  bool divide_by_initial_world_size = true;
  /// If false, does nothing, for programs that know their inputs to be even.
  bool enable = true;
  /// Throws on every rank, as soon as the data of one has ended.
  bool throw_on_early_termination = false;
};

/// The work of a rank whose data has ended, in place of a step.
class COHORT_API JoinHook {
 public:
  virtual ~JoinHook() = default;
  /// Called repeatedly while other ranks have data: takes part in the collectives of one of their steps.
  virtual void main_hook() {}
  /// Called once, when no rank has data any more. `is_last_joiner`: whether this rank is among those whose data ended last.
  virtual void post_hook(bool is_last_joiner) { static_cast<void>(is_last_joiner); }
};

/// The interface of things that communicate once per step and can be shadowed: DistributedDataParallel, optimizers with
/// collectives of their own. Call Join::notify_join_context(*this) before the collectives of a step.
class COHORT_API Joinable {
 public:
  virtual ~Joinable() = default;
  virtual std::unique_ptr<JoinHook> join_hook(const JoinOptions& options) = 0;
  /// The device for the collectives of Join itself.
  virtual c10::Device join_device() const = 0;
  /// Not null.
  virtual Group join_process_group() const = 0;

 protected:
  Joinable() = default;
  /// True inside a Join.
  bool is_in_join() const { return config_.enable; }

 private:
  friend class Join;
  struct Config {
    bool enable = false;
    bool throw_on_early_termination = false;
    bool is_first_joinable = false;
  };
  Config config_;
};

class COHORT_API Join {
 public:
  /// Throws c10::ValueError for an empty list, or joinables of several process groups (PyTorch's texts).
  explicit Join(std::vector<std::reference_wrapper<Joinable>> joinables, JoinOptions options = {});
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  /// Runs the main hooks until no rank has data any more, then the post-hooks. Collective. Does nothing while an exception leaves
  /// the scope. Throws what the hooks throw; with throw_on_early_termination c10::Error, "Rank 1 exhausted all inputs.".
  ~Join() noexcept(false);

  /// A joinable calls it before the collectives of a step: tells the ranks whose data has ended that another step comes. Returns
  /// the all-reduce that counts the ranks with data, with its result in result().front(); null outside a Join and for all
  /// joinables but the first. With throw_on_early_termination, throws c10::Error if the data of some rank has ended.
  static WorkPtr notify_join_context(Joinable& joinable);

 private:
  void shadow_others();
  int num_ranks_with_data() const;
  [[noreturn]] void throw_everywhere() const;

  std::vector<std::reference_wrapper<Joinable>> joinables_;
  std::vector<std::unique_ptr<JoinHook>> hooks_;
  JoinOptions options_;
  Group group_;
  c10::Device device_;
  int num_exceptions_;
};

}  // namespace cohort
