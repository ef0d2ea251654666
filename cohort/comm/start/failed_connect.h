/// Why the engine of a group could not connect, found out from what is known of its members.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>
#include <vector>

#include "cohort/base/error/failure.h"

namespace c10d {
class Store;
}

namespace cohort::comm {

class Peers;

struct FailedConnect {
  c10::intrusive_ptr<c10d::Store> store;  ///< the group's
  std::string group;
  std::vector<int> ranks;  ///< members, by default-group rank
  std::string option;      ///< what raises the time-out
  base::Failure cause;     ///< the engine's: its text, and whether it was a time-out
};

/// Why the connecting of a group failed: names the members that have ended and those that never arrived.
/// Blocks for at most half a second, for a process whose connections broke to be seen as ended.
base::Failure explain_failed_connect(const FailedConnect& failed, const Peers& peers);

}  // namespace cohort::comm
