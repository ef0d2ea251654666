/// The failure of an operation of the engine, as data; the layers above make texts and exceptions of it.
#pragma once

#include <memory>

#include "cohort/base/error/failure.h"

namespace cohort::shm {

using base::Failure;

/// Null means success.
using Outcome = std::shared_ptr<const Failure>;

inline Outcome fail(Failure failure) { return std::make_shared<const Failure>(std::move(failure)); }

}  // namespace cohort::shm
