/// LibTorch's Gloo engine, completed: composes operations, dtypes and layouts that it lacks from those that it has, and explains
/// its failures.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include "cohort/comm/backend/backend_request.h"
#include "cohort/export.h"

namespace c10d {
class Backend;
}

namespace cohort::comm {

/// Blocks until every rank of the group has connected, or throws c10::DistBackendError.
COHORT_TEST_API c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const BackendRequest& request);

}  // namespace cohort::comm
