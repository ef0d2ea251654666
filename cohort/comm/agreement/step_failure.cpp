#include "cohort/comm/agreement/step_failure.h"

#include <c10/util/Exception.h>

#include "cohort/comm/watch/throw_failure.h"

namespace cohort::comm {

void StepFailure::note(const std::exception_ptr& error, const std::string& what) {
  try {
    std::rethrow_exception(error);
  } catch (c10::Error& c10_error) {
    if (!what.empty()) c10_error.add_context(what);
    if (leaves_at_once_ || dynamic_cast<const c10::DistBackendError*>(&c10_error) != nullptr) throw;
    own_ = std::current_exception();
  } catch (...) {
    if (leaves_at_once_) throw;
    own_ = error;
  }
}

void StepFailure::share(const std::string& what, const RankExchange& ranks) const {
  if (ranks.largest({own_ ? 1 : 0}).front() == 0) return;
  const auto own = own_ ? StepResult(base::Error(text_of(own_))) : StepResult(std::string());
  auto failures = failures_of(ranks.all(own));
  // If several have failed, one may have failed because of another: all ranks get all reasons.
  if (own_ && failures.size() == 1) std::rethrow_exception(own_);
  throw RankError(what, std::move(failures), ranks.is_alone());
}

}  // namespace cohort::comm
