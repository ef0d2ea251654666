/// Where a Failure becomes one of LibTorch's exceptions, and what an engine's exception says.
#pragma once

#include <exception>
#include <string>

#include "cohort/export.h"
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

/// The text of an exception, without LibTorch's stack frames.
COHORT_EXTRAS_API std::string text_of(const std::exception& error);
/// Of one that may be of another kind, or have no text, and then says so. Never empty.
std::string text_of(const std::exception_ptr& error);

}  // namespace cohort::comm
