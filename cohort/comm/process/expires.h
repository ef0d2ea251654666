/// A block of code that must be over in time: otherwise the launcher ends this process, and says which block it was.
///
///     {
///       cohort::Expires guard(std::chrono::seconds(60), "epoch");
///       train_one_epoch();
///     }
///
/// The twin of torch.distributed.elastic.timer.expires() with a FileTimerClient, and it also works with torchrun. Start the job
/// with TORCHELASTIC_ENABLE_FILE_TIMER=1: the launcher then tells its workers in TORCHELASTIC_TIMER_FILE where it listens.
/// Nothing here uses LibTorch.
#pragma once

#include <chrono>
#include <csignal>
#include <source_location>
#include <string>

#include "cohort/export.h"

namespace cohort {

/// Thread-safety: any thread; the block is the process's. Of two blocks with one scope that overlap, the later one counts, and
/// the end of either ends both. A forked child has none of its parent's blocks, and must not run their destructors.
class COHORT_API Expires {
 public:
  /// Starts the clock: the wall clock, as the launcher measures.
  /// `scope` names the block, in UTF-8; "": the file and line of the call. `signal` ends the process; 0: it is only reported.
  /// Without TORCHELASTIC_TIMER_FILE nothing is watched, which is said once. Throws c10::Error if nobody listens
  /// there within a second, or if the scope is longer than some 3900 bytes.
  explicit Expires(std::chrono::duration<double> after, const std::string& scope = "", int signal = SIGKILL,
                   const std::source_location& where = std::source_location::current());
  /// The block is over. Blocks for a second at most; a launcher that is gone is a warning.
  ~Expires();
  Expires(const Expires&) = delete;
  Expires& operator=(const Expires&) = delete;

 private:
  std::string path_;
  std::string scope_;
};

}  // namespace cohort
