/// Expires: a time limit for a block of code. After it, the launcher ends this process and names the block.
///
///     {
///       cohort::Expires guard(std::chrono::seconds(60), "epoch");
///       train_one_epoch();
///     }
///
/// Corresponds to torch.distributed.elastic.timer.expires() with a FileTimerClient, and also works with torchrun. Start the job
/// with TORCHELASTIC_ENABLE_FILE_TIMER=1: the launcher then tells its workers in TORCHELASTIC_TIMER_FILE where it listens.
/// This header needs no LibTorch.
#pragma once

#include <chrono>
#include <csignal>
#include <optional>
#include <source_location>
#include <string>

#include "cohort/export.h"

namespace cohort {

/// Thread-safety: any thread; a block belongs to the process. If two blocks with one scope overlap, the later one counts, and
/// the end of either ends both. A forked child has none of its parent's blocks, and must not run their destructors.
class COHORT_API Expires {
 public:
  /// Starts the clock: the wall clock, as the launcher measures.
  /// `scope` names the block, in UTF-8; if absent, the file and line of the call. `signal` ends the process; as in PyTorch, 0
  /// or less means that the launcher only reports the block.
  /// Without TORCHELASTIC_TIMER_FILE nothing is watched, which is said once. Throws c10::Error if nobody listens
  /// there within a second, or if the scope is longer than some 3900 bytes.
  explicit Expires(std::chrono::duration<double> after, const std::optional<std::string>& scope = {},
                   int signal = SIGKILL, const std::source_location& where = std::source_location::current());
  /// Ends the block. Blocks for a second at most; warns if the launcher is gone.
  ~Expires();
  Expires(const Expires&) = delete;
  Expires& operator=(const Expires&) = delete;

 private:
  std::string path_;
  std::string scope_;
};

}  // namespace cohort
