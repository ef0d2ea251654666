/// A process that spawn has forked, as its parent sees it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "cohort/base/file/file.h"
#include "cohort/comm/process/process_context.h"

namespace cohort::comm {

/// Of an exception's text; a pipe holds that much, so that a rank is never blocked by writing it.
constexpr size_t kMaxErrorBytes = 64 * 1024;

struct SpawnedRank {
  pid_t pid = -1;
  base::Fd pidfd;
  /// The rank writes its exception's text here.
  base::Fd error_pipe;
  bool running = false;
  /// join() has seen its end.
  bool joined = false;
  /// As waitpid gives it, once it does not run any more.
  int status = 0;
};

}  // namespace cohort::comm

namespace cohort {

struct ProcessContext::Ranks {
  pid_t owner = -1;
  std::vector<comm::SpawnedRank> list;
};

/// How spawn fills a context.
struct StartedRanks {
  static std::vector<comm::SpawnedRank>& of(ProcessContext& context) { return context.ranks_->list; }
};

}  // namespace cohort
