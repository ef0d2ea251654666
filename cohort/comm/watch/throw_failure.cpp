#include "cohort/comm/watch/throw_failure.h"

#include <c10/util/Exception.h>

namespace cohort::comm {

void throw_failure(const Failure& failure) {
  if (failure.kind == Failure::Kind::kArgument) C10_THROW_ERROR(ValueError, failure_text(failure));
  if (failure.scope == Failure::Scope::kJob) C10_THROW_ERROR(DistStoreError, failure_text(failure));
  C10_THROW_ERROR(DistBackendError, failure_text(failure));
}

}  // namespace cohort::comm
