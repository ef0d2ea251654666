/// The report of a failed job: what each worker died of and which died first, in torchrun's own form.
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
  /// Seconds since 1970, when the failure happened or was noticed.
  std::time_t time = 0;
  /// It did not end: it hangs in the kernel.
  bool is_stuck = false;
  /// `block "epoch" overran its timer`, if that is why.
  std::string overrun = {};
  /// "<N/A>" if the worker left none.
  std::string error_file = "<N/A>";
  /// What the worker said itself, its signal, or how to get more.
  std::string message;
  /// "ValueError: ..." where the worker said that, without a traceback; else "".
  std::string error = {};
};

/// Describes a worker that ended badly. Reads the file that it may have left at `error_file` (written by Python's
/// @record or by hand): its message, its traceback and its own time, which may be earlier than `noticed_at`.
WorkerFailure describe_failure(int rank, int local_rank, pid_t pid, const base::ExitStatus& status,
                               const std::string& error_file, std::time_t noticed_at);

/// Adds why it was ended, unless it has said something itself.
void add_overrun(WorkerFailure& failure, const std::string& overrun);

/// The failure that came first; among those of one second, the first in the list. Requires a failure.
const WorkerFailure& root_cause(const std::vector<WorkerFailure>& failures);

/// The text of a worker's error file, with its exit code added, as a launcher passes it on in its own error file to
/// whoever started it. A text without a structured message is passed on as it is.
std::string error_file_with_code(const std::string& text, const base::ExitStatus& status);

/// torchrun's block from the first line of "=" to the last, without a newline at the end.
/// `failures` in the order in which they were noticed: the first stays first, the others are shown by rank, as torchrun
/// does. Times are shown in local time. Requires a failure.
std::string format_failure_report(const std::string& program, std::vector<WorkerFailure> failures,
                                  const std::string& host);

}  // namespace cohort::elastic
