/// RankExchange: how ranks tell each other what is no tensor: how a step went, texts, numbers, values. A process alone tells
/// itself, without communication.
///
/// Its calls are collective over the group and block; on their errors see object_collectives.h. Thread-safety: as collectives.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/comm/agreement/rank_error.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::comm {

/// What a step gave on a rank, any bytes, or why it failed there.
using StepResult = base::Result<std::string>;
/// Runs the step; what it throws becomes the error.
COHORT_TEST_API StepResult attempt(const std::function<std::string()>& step);
/// Of those that have failed, by their place in the list.
RankFailures failures_of(const std::vector<StepResult>& results);

class COHORT_TEST_API RankExchange {
 public:
  /// Null: this process alone.
  explicit RankExchange(Group group) : group_(std::move(group)) {}

  const Group& group() const { return group_; }
  bool is_alone() const { return group_ == nullptr; }
  int rank() const { return group_ ? group_->getRank() : 0; }
  int size() const { return group_ ? group_->getSize() : 1; }
  bool is_first() const { return rank() == 0; }

  /// Everybody's, by rank.
  std::vector<StepResult> all(const StepResult& own) const;
  std::vector<c10::IValue> all_values(const c10::IValue& own) const;
  std::vector<std::vector<int64_t>> all_numbers(const std::vector<int64_t>& own) const;
  /// The first rank's.
  StepResult from_first(const StepResult& own) const;
  /// The largest number of any rank, entry by entry.
  std::vector<int64_t> largest(std::vector<int64_t> numbers) const;

  /// What everybody's step gave, by rank. Throws RankError on all ranks if one of them has failed. `what`: begins its text.
  std::vector<std::string> all_done(const std::string& what, const StepResult& own) const;
  /// Makes a text for each rank of what their steps gave.
  using Answer = std::function<std::vector<std::string>(const std::vector<std::string>&)>;
  /// The first rank's answer to this one; what steps gave travels to that rank only. Throws RankError on all ranks if a step or
  /// the answer has failed.
  std::string answer_of_first(const std::string& what, const StepResult& own, const Answer& answer) const;

 private:
  std::vector<StepResult> at_first(const StepResult& own) const;

  Group group_;
};

}  // namespace cohort::comm
