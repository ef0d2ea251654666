/// What an exception of Gloo says.
#pragma once

#include <exception>

#include "cohort/job/failure.h"

namespace cohort::comm {

/// Returns: kTimeout or kEngine, with the engine's words as the one cause.
base::Failure gloo_failure(const std::exception& error);

}  // namespace cohort::comm
