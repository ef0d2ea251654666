/// What a rank did last on one group, and how two ranks' accounts are compared. Pure, but for the lock of OperationLog.
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

/// What must agree on every rank: "broadcast(src 1, float32 [4])"; and, where the library calls it, for what: ", which is ...".
std::string signature(const Operation& operation);
/// Whether ranks that call them can do that together.
bool agree(const std::string& signature, const std::string& other);
/// Whether they are called for the same purpose.
bool have_one_purpose(const std::string& signature, const std::string& other);

/// One rank's account: which collective it waits in or failed at, and the signatures of its last ones.
struct Account {
  std::string group;
  uint64_t sequence = 0;
  std::map<uint64_t, std::string> signatures;

  std::string encode() const;
  /// Never throws: what cannot be read is left out.
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

/// The first collective, among those that two accounts of one group both know, that is not the same on both.
std::optional<uint64_t> first_difference(const Account& mine, const Account& theirs);

}  // namespace cohort::job
