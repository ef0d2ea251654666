/// The OperationWatch of a group whose ranks are processes: names the rank that is gone, late or does something else.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "cohort/comm/operation_watch.h"
#include "cohort/comm/peers.h"

namespace cohort::comm {

/// `ranks`: default-group ranks of the group.
std::shared_ptr<OperationWatch> make_process_watch(std::shared_ptr<Peers> peers, std::vector<int> ranks,
                                                   std::chrono::milliseconds timeout);

}  // namespace cohort::comm
