/// The flight recorder: current and last operations of this host's ranks on groups with the shared-memory backend.
///
/// Always on. The record lies in memory that all ranks of the host share, so each function shows all of them, including ranks
/// that hang or are gone. Without such a group the answers are empty. A timeout and SIGUSR1 write the same files as
/// save_flight_recorder(); docs/environment_variables.md has the variables that say where and when.
///
/// Thread-safety: any thread, at any time, not collective. Blocks for some milliseconds.
#pragma once

#include <string>

#include "cohort/export.h"

namespace cohort::comm {

/// Returns JSON with the fields of PyTorch's flight recorder, version 2.10 (torch._C._distributed_c10d._dump_fr_trace_json). Each
/// entry also has a "rank", because this text has all ranks of the host.
COHORT_API std::string dump_flight_recorder();

/// Returns a text for people: what each rank does and since when, where ranks differ, the last operations of each rank.
COHORT_API std::string dump_flight_recorder_text();

/// Writes `<prefix><rank>.txt`, `.json` and `.trace.json`, and `<directory>/torch_<name><rank>` for torchfrtrace. If `prefix` is
/// empty, uses COHORT_TRACE_FILE, or a folder of this user among the temporary files.
/// Returns: the path of the text file. Throws c10::Error if it cannot be written.
COHORT_API std::string save_flight_recorder(const std::string& prefix = "");

/// Writes the ranks' operations for chrome://tracing and Perfetto. Throws c10::Error if the file cannot be written.
COHORT_API void save_chrome_trace(const std::string& path);

[[deprecated("use save_flight_recorder")]] inline std::string write_flight_recorder(const std::string& prefix = "") {
  return save_flight_recorder(prefix);
}
[[deprecated("use save_chrome_trace")]] inline void write_chrome_trace(const std::string& path) {
  save_chrome_trace(path);
}

}  // namespace cohort::comm
