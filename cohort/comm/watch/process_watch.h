/// The OperationWatch of a group whose ranks are processes: names the rank that is gone, late, or in another operation.
///
/// A rank that waits for longer than a second tells the others where (reports.h) and reads where they are. So ranks that
/// call different collectives find out within two seconds, without a check in each call.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "cohort/comm/watch/operation_watch.h"
#include "cohort/comm/watch/peers.h"
#include "cohort/comm/watch/reports.h"

namespace cohort::comm {

struct WatchedGroup {
  std::string name;        ///< as in Operation::group
  std::vector<int> ranks;  ///< default-group ranks, in group order
  int rank = 0;            ///< in the group
  std::chrono::milliseconds timeout;
  /// The group's own store; used to compare each call with TORCH_DISTRIBUTED_DEBUG=DETAIL.
  c10::intrusive_ptr<c10d::Store> store;
};

std::shared_ptr<OperationWatch> make_process_watch(std::shared_ptr<Peers> peers, std::shared_ptr<Reports> reports,
                                                   WatchedGroup group);

}  // namespace cohort::comm
