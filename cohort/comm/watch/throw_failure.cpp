#include "cohort/comm/watch/throw_failure.h"

#include <c10/util/Exception.h>

namespace cohort::comm {

void throw_failure(const Failure& failure) {
  if (failure.kind == Failure::Kind::kArgument) C10_THROW_ERROR(ValueError, failure_text(failure));
  if (failure.scope == Failure::Scope::kJob) C10_THROW_ERROR(DistStoreError, failure_text(failure));
  C10_THROW_ERROR(DistBackendError, failure_text(failure));
}

std::string text_of(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  return c10_error ? c10_error->what_without_backtrace() : error.what();
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    const std::string text = text_of(known);
    return text.empty() ? "an exception without a text" : text;
  } catch (...) {
    return "an exception of another kind than std::exception";
  }
}

}  // namespace cohort::comm
