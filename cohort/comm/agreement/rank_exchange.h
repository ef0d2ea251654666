/// RankExchange: exchanges values that are not tensors between ranks: results of a step, texts, numbers. A process alone gets its
/// own values back, without communication.
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

/// Result of a step on a rank: any bytes, or why it failed.
using StepResult = base::Result<std::string>;
/// Runs the step and turns an exception into the error.
COHORT_TEST_API StepResult attempt(const std::function<std::string()>& step);
/// Returns the failures, by the position in the list.
RankFailures failures_of(const std::vector<StepResult>& results);

class COHORT_TEST_API RankExchange {
 public:
  /// If `group` is null, this process is alone.
  explicit RankExchange(Group group) : group_(std::move(group)) {}

  const Group& group() const { return group_; }
  bool is_alone() const { return group_ == nullptr; }
  int rank() const { return group_ ? group_->getRank() : 0; }
  int size() const { return group_ ? group_->getSize() : 1; }
  bool is_first() const { return rank() == 0; }

  /// Return the values of all ranks, by rank.
  std::vector<StepResult> all(const StepResult& own) const;
  std::vector<c10::IValue> all_values(const c10::IValue& own) const;
  std::vector<std::vector<int64_t>> all_numbers(const std::vector<int64_t>& own) const;
  /// Returns the value of the first rank.
  StepResult from_first(const StepResult& own) const;
  /// Returns, for each entry, the largest number of any rank.
  std::vector<int64_t> largest(std::vector<int64_t> numbers) const;

  /// Returns the results of all ranks' steps, by rank. Throws RankError on all ranks if one has failed. `what`: begins its text.
  std::vector<std::string> all_done(const std::string& what, const StepResult& own) const;
  /// Makes a text for each rank from the results of the ranks' steps.
  using Answer = std::function<std::vector<std::string>(const std::vector<std::string>&)>;
  /// Returns the first rank's answer to this rank; results of steps travel to the first rank only. Throws RankError on all ranks
  /// if a step or the answer has failed.
  std::string answer_of_first(const std::string& what, const StepResult& own, const Answer& answer) const;

 private:
  std::vector<StepResult> at_first(const StepResult& own) const;

  Group group_;
};

}  // namespace cohort::comm
