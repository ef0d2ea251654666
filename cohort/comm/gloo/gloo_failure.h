/// Failures from Gloo's exceptions.
#pragma once

#include <exception>

#include "cohort/job/failure.h"

namespace cohort::comm {

/// Returns: kTimeout or kEngine, with the engine's words as the only cause.
base::Failure gloo_failure(const std::exception& error);

}  // namespace cohort::comm
