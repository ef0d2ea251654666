/// RankError: thrown on all ranks if some of them have failed.
#pragma once

#include <c10/util/Exception.h>

#include <map>
#include <string>

#include "cohort/export.h"

namespace cohort::comm {

/// Reasons of failed ranks, by rank.
using RankFailures = std::map<int, std::string>;

/// Says which ranks failed, and why each:
/// ```text
/// [cohort] save_sharded: cannot save "run"
///   rank 1: tensor "sparse" is sparse; call to_dense() first
/// ```
class COHORT_API RankError : public c10::Error {
 public:
  /// `what`: begins the text. `is_alone`: there is only one rank, so the text does not name it.
  RankError(const std::string& what, RankFailures failures, bool is_alone = false);

  /// Returns the reasons, by the ranks that the text names.
  const RankFailures& failures() const { return failures_; }

 private:
  RankFailures failures_;
};

}  // namespace cohort::comm
