/// The backend "shm": ranks of one host through shared memory (cohort/shm), faster than sockets by two orders of magnitude
/// for small tensors.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include "cohort/comm/backend_request.h"
#include "cohort/export.h"

namespace c10d {
class Backend;
}

namespace cohort::comm {

/// Collective: every rank of the group must call this. Blocks until all have attached.
/// Throws c10::DistBackendError, on every rank, when one of them cannot or does not come in time.
COHORT_API c10::intrusive_ptr<c10d::Backend> make_shm_backend(const BackendRequest& request);

}  // namespace cohort::comm
