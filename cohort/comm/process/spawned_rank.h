/// A process that spawn has forked, as its parent sees it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "cohort/base/file/file.h"
#include "cohort/comm/process/process_context.h"

namespace cohort::comm {

/// The limit of an exception's text. A pipe holds that much, so that a rank never blocks when it writes it.
constexpr size_t kMaxErrorBytes = 64 * 1024;

struct SpawnedRank {
  pid_t pid = -1;
  base::Fd pidfd;
  /// The rank writes its exception's text here.
  base::Fd error_pipe;
  bool running = false;
  /// Whether join() has seen its end.
  bool joined = false;
  /// The status from waitpid, once the rank does not run any more.
  int status = 0;
};

}  // namespace cohort::comm

namespace cohort {

struct ProcessContext::Ranks {
  pid_t owner = -1;
  std::vector<comm::SpawnedRank> list;
};

}  // namespace cohort

namespace cohort::comm {

/// Gives spawn access to a context's ranks.
struct StartedRanks {
  static std::vector<comm::SpawnedRank>& of(ProcessContext& context) { return context.ranks_->list; }
};

}  // namespace cohort::comm
