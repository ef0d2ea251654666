/// RankTalk: texts and flags between all ranks of a run, or of a process alone with itself.
///
/// Collective, over a group of its own. Thread-safety: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "cohort/comm/group/process_group.h"

namespace cohort::checkpoint {

class RankTalk {
 public:
  /// A new group of all ranks, unless the process is alone. `purpose`: what its errors call it.
  explicit RankTalk(const std::string& purpose);

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Null for a process alone.
  const Group& group() const { return group_; }

  /// Rank 0's text.
  std::string from_first(const std::string& text) const;
  /// Everybody's, by rank.
  std::vector<std::string> from_all(const std::string& text) const;
  /// The largest number of any rank, entry by entry.
  std::vector<int64_t> largest(std::vector<int64_t> numbers) const;
  void set_timeout(std::chrono::milliseconds timeout) const;

 private:
  Group group_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace cohort::checkpoint
