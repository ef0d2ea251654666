/// The groups of this process, for dumps.
#pragma once

#include <string>
#include <vector>

#include "cohort/shm/report/group_trace.h"
#include "cohort/shm/segment/segment.h"

namespace cohort::shm {

struct TracedGroupOptions {
  /// See GroupTrace. If empty, the description is used.
  std::string name;
  std::string description;
  int rank = 0;
  /// The global ranks of the group's ranks. If empty, they are the same as the ranks in the group.
  std::vector<int> global_ranks;
};

/// A rank's membership of a group, which dumps include from construction to destruction. Any thread. The first one of a process
/// makes it listen to the dump signal, see dump.h. A forked child only has its own.
class TracedGroup {
 public:
  /// The segment's memory must outlive this object.
  TracedGroup(Segment segment, TracedGroupOptions options);
  /// Blocks while another thread reads the group's traces.
  ~TracedGroup();
  TracedGroup(const TracedGroup&) = delete;
  TracedGroup& operator=(const TracedGroup&) = delete;
};

/// Reads what the ranks of this process's groups do now and did last. Includes groups that were destroyed if a dump at exit was
/// asked for.
ProcessTrace read_process_trace(const std::string& reason);

}  // namespace cohort::shm
