/// Dumps: files with what each rank of the host does now and did last.
///
/// For the prefix `/tmp/run_` on rank 3 there are `/tmp/run_3.txt` for people, `/tmp/run_3.json`, and `/tmp/run_3.trace.json` for
/// Chrome and Perfetto, each with all ranks that share a group with this one. `/tmp/torch_run_3` is for torchfrtrace, which needs
/// a file per rank and no other files with that prefix; a process that dumps also writes the files of ranks that have ended. A
/// process that does not know its rank writes `/tmp/run_pid4711.txt`. Files have mode 0600 and appear complete.
///
///     COHORT_TRACE_FILE        the prefix; default: `<TMPDIR or /tmp>/cohort_trace_<user id>/<pid of the parent>_rank_`
///     TORCH_FR_DUMP_TEMP_FILE  prefix of the file for torchfrtrace (alias TORCH_NCCL_DEBUG_INFO_TEMP_FILE)
///     COHORT_TRACE_DUMP        `timeout` (default): when an operation times out, once; `exit`: also at exit; `never`
///     TORCH_NCCL_DUMP_ON_TIMEOUT=0  as COHORT_TRACE_DUMP=never
///     COHORT_TRACE_SIGNAL      the signal that asks for a dump, default SIGUSR1; 0: none. The program's own handler stays.
///
/// Thread-safety: any thread. No function throws.
#pragma once

#include <string>

namespace cohort::shm {

/// Writes the files. Returns the path of the text; "" if it could not be written, which is logged. An empty prefix means the
/// default above.
std::string dump_traces(const std::string& prefix = "", const std::string& reason = "") noexcept;

/// Dumps when an operation has timed out, "all_reduce on group \"dp\"", at the first call of the process. Returns the path of the
/// text for this call and calls within the next seconds, else "".
std::string note_timeout(const std::string& operation) noexcept;

/// Writes one line to standard error that says which process has dumped, and where.
void say_where(const std::string& text_path) noexcept;

/// Whether COHORT_TRACE_DUMP=exit.
bool wants_dump_at_exit();
/// Makes the process dump at its exit. Calling it more than once has no further effect.
void dump_at_exit();

}  // namespace cohort::shm
