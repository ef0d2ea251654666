/// What ranks that save or load together tell each other: how a step went on each of them. A rank whose step fails says so
/// instead of its result, so that no rank waits for one that has given up.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cohort/base/result.h"
#include "cohort/comm/group/process_group.h"

namespace cohort::checkpoint::detail {

/// What a step gave, or why it failed.
struct StepResult {
  bool failed = false;
  std::string text;
};
/// Turns what it throws into a failure.
StepResult attempt(const std::function<std::string()>& step);
/// The value, or throws the error for attempt() to catch.
void throw_if_failed(const base::Result<void>& result);
template <typename T>
T value_or_throw(base::Result<T> result) {
  if (!result) throw_if_failed(result.error());
  return std::move(*result);
}

using Failures = std::map<int, std::string>;
Failures failures_of(const std::vector<StepResult>& results);

/// Rank 0 is the coordinator.
class RankExchange {
 public:
  /// Null: this process alone.
  explicit RankExchange(Group group) : group_(std::move(group)) {}
  /// The group of the options: null, the default group, or the one given.
  static Group group_of(const Group& group, bool no_dist);

  bool is_alone() const { return group_ == nullptr; }
  int rank() const;
  int size() const;

  /// On the coordinator: every rank's; elsewhere none.
  std::vector<StepResult> gather(const StepResult& own) const;
  std::vector<StepResult> all_gather(const StepResult& own) const;
  /// From the coordinator to each rank: its text, or the failures of any rank, which are thrown here as CheckpointException.
  /// `what`: `save_sharded: cannot save "run"`.
  std::string scatter(const std::string& what, const std::vector<std::string>& texts, const Failures& failures) const;

  [[noreturn]] void throw_failures(const std::string& what, const Failures& failures) const;

 private:
  Group group_;
};

}  // namespace cohort::checkpoint::detail
