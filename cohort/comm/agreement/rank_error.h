/// RankError: what some ranks could not do, thrown on all of them.
#pragma once

#include <c10/util/Exception.h>

#include <map>
#include <string>

#include "cohort/export.h"

namespace cohort::comm {

/// Why ranks could not do their part, by rank.
using RankFailures = std::map<int, std::string>;

/// Says which ranks failed, and why each:
///     [cohort] save_sharded: cannot save "run"
///       rank 1: tensor "sparse" is sparse; call to_dense() first
class COHORT_API RankError : public c10::Error {
 public:
  /// `what`: begins the text. `is_alone`: there is only one rank, which the text then does not name.
  RankError(const std::string& what, RankFailures failures, bool is_alone = false);

  /// By the ranks that the text names.
  const RankFailures& failures() const { return failures_; }

 private:
  RankFailures failures_;
};

}  // namespace cohort::comm
