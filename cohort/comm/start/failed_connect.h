/// Finds out why the engine of a group could not connect, from what is known of its members.
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
  c10::intrusive_ptr<c10d::Store> store;  ///< the group's store
  std::string group;
  std::vector<int> ranks;  ///< members, by default-group rank
  std::string option;      ///< the option that raises the timeout
  base::Failure cause;     ///< the engine's failure: its text, and whether it was a timeout
};

/// Names the members that have ended and those that never arrived.
/// Blocks for at most half a second, until a process whose connections broke is seen as ended.
base::Failure explain_failed_connect(const FailedConnect& failed, const Peers& peers);

}  // namespace cohort::comm
