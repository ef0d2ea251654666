/// Asynchronous operations whose Work nobody has looked at: the program may have read results before they were ready. A warning
/// names them once, when the groups end, or in Python when the program ends.
#pragma once

#include <cstdint>
#include <string>

namespace cohort::comm {

/// The ranks that warn. All ranks call a collective, so one of them warns; a send or receive belongs to one rank.
enum class UnawaitedOn { kAllRanks, kThisRank };

/// Notes an operation whose Work is destroyed. Thread-safe.
void note_unawaited(const std::string& operation, uint64_t sequence, const std::string& group, UnawaitedOn where);
/// Names the operations in a warning, if there are any, and forgets them. Collectives only if this rank `says_for_all`.
void warn_of_unawaited(bool says_for_all);

}  // namespace cohort::comm
