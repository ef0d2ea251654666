#include "cohort/comm/agreement/rank_error.h"

#include <utility>

#include "cohort/base/text/text.h"
#include "cohort/comm/error/exception_text.h"

namespace cohort::comm {
namespace {

std::string text_of_failures(const std::string& what, const RankFailures& failures, bool is_alone) {
  std::string text = std::string(kErrorMark) + what;
  for (const auto& [rank, reason] : failures) {
    const std::string plain = without_mark(reason);
    text += is_alone ? "\n  caused by: " + plain
                     : "\n  rank " + std::to_string(rank) + ": " + base::replace_all(plain, "\n", "\n  ");
  }
  return text;
}

}  // namespace

RankError::RankError(const std::string& what, RankFailures failures, bool is_alone)
    : c10::Error({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text_of_failures(what, failures, is_alone)),
      failures_(std::move(failures)) {}

}  // namespace cohort::comm
