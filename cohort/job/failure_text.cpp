#include "cohort/job/failure_text.h"

#include <sstream>

#include "cohort/base/text.h"

namespace cohort::job {

std::string ranks_in_words(const std::vector<int>& ranks) { return base::ranks_in_words(ranks); }

std::string failure_message(const Failure& failure) {
  const auto& operation = failure.operation;
  std::ostringstream out;
  out << "[cohort] " << operation.name << " #" << operation.sequence << " on group \"" << operation.group
      << "\" failed\n  rank " << operation.rank << " of " << operation.world_size << " on " << operation.host
      << ", backend " << operation.backend;
  if (!operation.dtype.empty()) {
    out << ", " << base::format_bytes(static_cast<unsigned long long>(operation.num_bytes)) << " " << operation.dtype;
  }
  for (const auto& cause : failure.causes) out << "\n  caused by: " << cause;
  if (!failure.hint.empty()) out << "\n  hint: " << failure.hint;
  return out.str();
}

}  // namespace cohort::job
