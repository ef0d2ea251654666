/// Asynchronous collectives whose Work nobody has looked at: results may have been read before they were there. They are named
/// once, when the groups end.
#pragma once

#include <cstdint>
#include <string>

namespace cohort::comm {

/// The Work is gone. Thread-safe.
void note_unawaited(const std::string& operation, uint64_t sequence, const std::string& group);
/// Names them in a warning, if there are any and this rank `says` it for all, and forgets them.
void warn_of_unawaited(bool says);

}  // namespace cohort::comm
