/// A rank's last operations on one group, and the comparison of two ranks' records. Pure, except for the lock of OperationLog.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cohort/job/operation.h"

namespace cohort::job {

/// Returns the text that must agree on every rank: "broadcast(src 1, float32 [4])"; for a call of the library followed by its
/// purpose: ", which is ...".
std::string signature(const Operation& operation);
/// Whether ranks with these calls can work together.
bool agree(const std::string& signature, const std::string& other);
/// Whether both calls have the same purpose.
bool have_one_purpose(const std::string& signature, const std::string& other);

/// One rank's record: the collective in which it waits or at which it failed, and the signatures of its last ones.
struct Account {
  std::string group;
  uint64_t sequence = 0;
  std::map<uint64_t, std::string> signatures;

  std::string encode() const;
  /// Never throws; ignores malformed parts.
  static Account decode(const std::string& text);
};

/// The last collectives of this rank on one group. Thread-safe.
class OperationLog {
 public:
  void add(const Operation& operation);
  Account account(const Operation& current) const;
  std::optional<Operation> latest() const;

 private:
  mutable std::mutex mutex_;
  std::deque<Operation> recent_;
};

/// Returns the first collective that both accounts have, but with different signatures.
std::optional<uint64_t> first_difference(const Account& mine, const Account& theirs);

}  // namespace cohort::job
