/// Brings the ranks of a job together: from a RendezvousPlan to a store that all of them share.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>

#include "cohort/comm/start/rendezvous_url.h"

namespace c10d {
class Store;
}

namespace cohort::comm {

/// The ranks that wait until all have come. kMembershipCheck: every rank, in the membership check that follows
/// (membership_check.h). kStore: the rank that hosts the store, in meet(), if ranks give no sign of life that a membership check
/// knows (Python ranks without Gloo).
enum class Attendance { kMembershipCheck, kStore };

/// Returns: the job's store, with the prefix "default_pg" as in Python.
/// Throws c10::DistNetworkError if the store cannot be reached within `timeout` or cannot be hosted here (the text says which
/// process has the port), c10::ValueError if another rank 0 hosts it, c10::DistStoreError for Attendance::kStore's timeout.
c10::intrusive_ptr<c10d::Store> meet(const RendezvousPlan& plan, std::chrono::milliseconds timeout,
                                     Attendance attendance = Attendance::kMembershipCheck);

/// Returns, on the rank that hosts the store, why others may look for it elsewhere; "" if the host name leads here.
std::string unreachable_master_note(const RendezvousPlan& plan);

}  // namespace cohort::comm
