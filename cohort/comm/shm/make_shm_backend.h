/// The backend "shm": ranks of one host communicate through shared memory (cohort/shm), for small tensors a hundred times faster
/// than over sockets.
#pragma once

#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>

#include <string>
#include <utility>

#include "cohort/comm/backend/backend_request.h"
#include "cohort/export.h"

namespace c10d {
class Backend;
}

namespace cohort::comm {

class DirectCollectives;

/// A rank is there, but cannot attach (not permitted, or not enough memory). Every rank of the group gets this error.
class CannotShareMemory : public c10::DistBackendError {
 public:
  CannotShareMemory(c10::SourceLocation where, std::string text, std::string reason)
      : DistBackendError(where, std::move(text)), reason_(std::move(reason)) {}
  /// One line, such as "rank 1: memfd_create: Operation not permitted (EPERM)".
  const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
};

/// Collective: every rank of the group must call this. Blocks until all have attached.
/// Throws CannotShareMemory; c10::DistBackendError, on every rank, if one of them has ended or does not come in time.
COHORT_TEST_API c10::intrusive_ptr<c10d::Backend> make_shm_backend(const BackendRequest& request);

/// Returns null for backends other than "shm". Cheap.
DirectCollectives* shm_direct_collectives(c10d::Backend& backend);

}  // namespace cohort::comm
