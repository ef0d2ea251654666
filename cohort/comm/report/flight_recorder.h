/// The flight recorder: what the ranks of this host do now and did last on groups with the shared-memory backend.
///
/// Always on. Every rank's last operations lie in memory that all ranks of the host share, so each of these shows all of them,
/// also ranks that hang or are gone. Without such a group the answers are empty. A time-out and SIGUSR1 write the same files
/// as write_flight_recorder(); docs/environment_variables.md has the variables that say where and when.
///
/// Thread-safety: any thread, at any time, not collective. Blocks for some milliseconds.
#pragma once

#include <string>

#include "cohort/export.h"

namespace cohort::comm {

/// JSON with the fields of PyTorch's flight recorder, version 2.10 (torch._C._distributed_c10d._dump_fr_trace_json). One entry
/// has a "rank" more, because this text holds all ranks of the host.
COHORT_API std::string dump_flight_recorder();

/// For people: who does what since when, where ranks differ, the last operations of each rank.
COHORT_API std::string dump_flight_recorder_text();

/// Writes `<prefix><rank>.txt`, `.json` and `.trace.json`, and `<directory>/torch_<name><rank>` for torchfrtrace. An empty
/// prefix: the one of COHORT_TRACE_FILE, or a folder of this user among the temporary files.
/// Returns: the path of the text. Throws c10::Error if it cannot be written.
COHORT_API std::string write_flight_recorder(const std::string& prefix = "");

/// Writes the ranks' operations for chrome://tracing and Perfetto. Throws c10::Error if the file cannot be written.
COHORT_API void write_chrome_trace(const std::string& path);

}  // namespace cohort::comm
