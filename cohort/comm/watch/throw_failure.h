/// Turns a Failure into one of LibTorch's exceptions.
#pragma once

#include "cohort/comm/error/exception_text.h"
#include "cohort/job/failure.h"

namespace cohort::comm {

using base::Failure;
using job::decode_failure;
using job::encode_failure;
using job::failure_of;
using job::failure_text;
using job::wait_timed_out;

/// Throws failure_text(failure) as c10::ValueError (Kind::kArgument), c10::DistStoreError (Scope::kJob) or
/// c10::DistBackendError.
[[noreturn]] void throw_failure(const Failure& failure);

}  // namespace cohort::comm
