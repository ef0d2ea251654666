/// Brings the ranks of a job together: from a RendezvousPlan to a store that all of them share.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>

#include "cohort/comm/rendezvous_url.h"

namespace c10d {
class Store;
}

namespace cohort::comm {

/// Returns: the job's store, prefixed "default_pg" as Python prefixes it.
/// Throws c10::DistNetworkError or c10::DistStoreError when the ranks do not meet within `timeout`.
c10::intrusive_ptr<c10d::Store> meet(const RendezvousPlan& plan, std::chrono::milliseconds timeout);

}  // namespace cohort::comm
