/// The report of a failed job: why each worker failed and which failed first, in torchrun's format.
#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "cohort/base/process/process.h"

namespace cohort::elastic {

struct WorkerFailure {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
  base::ExitStatus status;
  /// The time when the failure happened or was noticed, in seconds since 1970.
  std::time_t time = 0;
  /// Whether the worker did not end because it hangs in the kernel.
  bool is_stuck = false;
  /// The reason `block "epoch" overran its timer`, if it was one.
  std::string overrun = {};
  /// "<N/A>" if the worker left no file.
  std::string error_file = "<N/A>";
  /// The worker's own message, its signal, or how to get more information.
  std::string message;
  /// "ValueError: ..." without a traceback if the worker reported it; else "".
  std::string error = {};
};

/// Describes a worker that failed. Reads the file that it may have left at `error_file` (written by Python's @record or by hand):
/// its message, its traceback and its own time, which may be earlier than `noticed_at`.
WorkerFailure describe_failure(int rank, int local_rank, pid_t pid, const base::ExitStatus& status,
                               const std::string& error_file, std::time_t noticed_at);

/// Adds the overrun as the reason, unless the worker has left a message itself.
void add_overrun(WorkerFailure& failure, const std::string& overrun);

/// Returns the earliest failure; of several in one second, the first in the list. Requires a failure.
const WorkerFailure& root_cause(const std::vector<WorkerFailure>& failures);

/// Returns the text of a worker's error file with its exit code added. A launcher that is itself a worker writes it to its own
/// error file. A text without a structured message stays as it is.
std::string error_file_with_code(const std::string& text, const base::ExitStatus& status);

/// Returns torchrun's block from the first line of "=" to the last, without a newline at the end. `failures` are in the order in
/// which they were noticed: the first stays first, the others are sorted by rank, as torchrun does. Times are local times.
/// Requires a failure.
std::string format_failure_report(const std::string& program, std::vector<WorkerFailure> failures,
                                  const std::string& host);

}  // namespace cohort::elastic
