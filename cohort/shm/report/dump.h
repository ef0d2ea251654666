/// Dumps: what each rank of the host does now and did last, written to files.
///
/// For the prefix `/tmp/run_` on rank 3: `/tmp/run_3.txt` for people, `/tmp/run_3.json`, `/tmp/run_3.trace.json` for Chrome
/// and Perfetto: all ranks that share a group with this one. And `/tmp/torch_run_3` for torchfrtrace, which wants a file per
/// rank and nothing else with that prefix; ranks that are gone get theirs from whoever dumps. A process that does not know its
/// rank writes `/tmp/run_pid4711.txt`. Files have mode 0600 and appear whole.
///
///     COHORT_TRACE_FILE        the prefix; default: `<TMPDIR or /tmp>/cohort_trace_<user id>/<pid of the parent>_rank_`
///     TORCH_FR_DUMP_TEMP_FILE  prefix of the file for torchfrtrace (alias TORCH_NCCL_DEBUG_INFO_TEMP_FILE)
///     COHORT_TRACE_DUMP        `timeout` (default): when an operation times out, once; `exit`: also at exit; `never`
///     TORCH_NCCL_DUMP_ON_TIMEOUT=0  as COHORT_TRACE_DUMP=never
///     COHORT_TRACE_SIGNAL      the signal that asks for a dump, default SIGUSR1; 0: none. A handler of the program's own stays.
///
/// Thread-safety: any thread. Nothing here throws.
#pragma once

#include <string>

namespace cohort::shm {

/// Returns: the path of the text; "" if it could not be written, which is logged. An empty prefix: the one above.
std::string dump_traces(const std::string& prefix = "", const std::string& reason = "") noexcept;

/// To be called when an operation has timed out, "all_reduce on group \"dp\"". The first call of the process dumps.
/// Returns: the path of the text for this and calls within the next seconds, else "".
std::string note_timeout(const std::string& operation) noexcept;

/// One line on standard error: who has dumped, and where.
void say_where(const std::string& text_path) noexcept;

/// COHORT_TRACE_DUMP=exit.
bool wants_dump_at_exit();
/// Sees to that; more than once is once.
void dump_at_exit();

}  // namespace cohort::shm
