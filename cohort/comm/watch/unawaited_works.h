/// Asynchronous operations whose Work nobody has looked at: results may have been read before they were there. They are named
/// once, when the groups end, in Python when the program ends.
#pragma once

#include <cstdint>
#include <string>

namespace cohort::comm {

/// Whose fault it is: all ranks call a collective, and one of them says it; a send or receive is one rank's.
enum class UnawaitedOn { kAllRanks, kThisRank };

/// The Work is gone. Thread-safe.
void note_unawaited(const std::string& operation, uint64_t sequence, const std::string& group, UnawaitedOn where);
/// Names them in a warning, if there are any, and forgets them. Collectives only where this rank `says_for_all`.
void warn_of_unawaited(bool says_for_all);

}  // namespace cohort::comm
