/// Which groups this process is in, so that a dump finds them.
#pragma once

#include <string>
#include <vector>

#include "cohort/shm/report/group_trace.h"
#include "cohort/shm/segment/segment.h"

namespace cohort::shm {

struct TracedGroupOptions {
  /// See GroupTrace. An empty name: the description.
  std::string name;
  std::string description;
  int rank = 0;
  /// The ranks in the job of the group's ranks; empty: the same numbers.
  std::vector<int> global_ranks;
};

/// A rank's membership of a group, known to dumps from construction to destruction. Any thread. The first one of a process
/// makes it listen to the dump signal, see dump.h. A forked child knows only its own.
class TracedGroup {
 public:
  /// The segment's memory must outlive this.
  TracedGroup(Segment segment, TracedGroupOptions options);
  /// Blocks while another thread reads the group's traces.
  ~TracedGroup();
  TracedGroup(const TracedGroup&) = delete;
  TracedGroup& operator=(const TracedGroup&) = delete;
};

/// What the ranks of this process's groups do now and did last. Also of groups that are gone, if a dump at exit was asked for.
ProcessTrace read_process_trace(const std::string& reason);

}  // namespace cohort::shm
