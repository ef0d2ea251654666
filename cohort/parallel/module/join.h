/// Join: training on ranks that have different numbers of batches. A rank whose data has ended takes part in the collectives of
/// those that go on, with contributions that change nothing. Follows torch/distributed/algorithms/join.py.
///
///     {
///       const cohort::Join join({ddp->joinable(), optimizer});   // or, for one wrapper alone, ddp->join()
///       for (const auto& batch : batches) { ... }                // as without it
///     }                                                          // waits here until the data of all ranks has ended
///
/// Collectives of the program's own, or of modules such as SyncBatchNorm, know nothing of it; with them use
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
  /// Gradients are divided by the number of all ranks, so that every sample counts alike; else by the number of those that still
  /// have data, as if there were no others.
  bool divide_by_initial_world_size = true;
  /// False: nothing is done, for programs that know their inputs to be even.
  bool enable = true;
  /// Throws on every rank, as soon as the data of one has ended.
  bool throw_on_early_termination = false;
};

/// What a rank whose data has ended does in place of a step.
class COHORT_API JoinHook {
 public:
  virtual ~JoinHook() = default;
  /// Called again and again while other ranks have data: takes part in the collectives of one of their steps.
  virtual void main_hook() {}
  /// Called once, when no rank has data any more. `is_last_joiner`: this rank is one of those whose data ended last.
  virtual void post_hook(bool is_last_joiner) { static_cast<void>(is_last_joiner); }
};

/// Whatever communicates once per step and can be shadowed: DistributedDataParallel, optimizers with collectives of their own.
/// Before the collectives of a step it calls Join::notify_join_context(*this).
class COHORT_API Joinable {
 public:
  virtual ~Joinable() = default;
  virtual std::unique_ptr<JoinHook> join_hook(const JoinOptions& options) = 0;
  /// Where the collectives of Join itself take place.
  virtual c10::Device join_device() const = 0;
  /// Not null.
  virtual Group join_process_group() const = 0;

 protected:
  Joinable() = default;
  /// True inside of a Join.
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
  /// Throws c10::ValueError for no joinables, or joinables of several process groups (PyTorch's texts).
  explicit Join(std::vector<std::reference_wrapper<Joinable>> joinables, JoinOptions options = {});
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  /// Collective: runs the main hooks until no rank has data any more, then the post-hooks. Does nothing while an exception leaves
  /// the scope. Throws what the hooks throw; with throw_on_early_termination c10::Error, "Rank 1 exhausted all inputs.".
  ~Join() noexcept(false);

  /// To be called by a joinable before the collectives of a step: tells the ranks whose data has ended that one more comes.
  /// Returns the all-reduce that counts the ranks with data, its result in result().front(); null outside of a Join and for all
  /// but its first joinable. Throws c10::Error, with throw_on_early_termination, when the data of some rank has ended.
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
