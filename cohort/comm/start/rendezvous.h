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

/// Who waits until all ranks have come: call_roll (roll_call.h), which every rank calls afterwards, or, where ranks give no
/// sign of life that it knows (Python ranks without Gloo), the rank that hosts the store, here.
enum class Attendance { kRollCall, kStore };

/// Returns: the job's store, prefixed "default_pg" as Python prefixes it.
/// Throws c10::DistNetworkError when the store cannot be reached within `timeout` or hosted here (the text says by whom the
/// port is taken), c10::ValueError when another rank 0 hosts it, c10::DistStoreError for Attendance::kStore's time-out.
c10::intrusive_ptr<c10d::Store> meet(const RendezvousPlan& plan, std::chrono::milliseconds timeout,
                                     Attendance attendance = Attendance::kRollCall);

/// On the rank that hosts the store: why others may look for it elsewhere; "" if the host name leads here.
std::string unreachable_master_note(const RendezvousPlan& plan);

}  // namespace cohort::comm
