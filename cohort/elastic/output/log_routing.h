/// The destinations of each worker's output: --redirects, --tee, --local-ranks-filter and the log folder's tree, as torchrun's.
///
///     <log_dir>/<run_id>_XXXXXX/attempt_0/<local_rank>/{stdout.log, stderr.log, error.json}
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::elastic {

/// Selects streams of a worker for a setting: "0" none, "1" out, "2" err, "3" both.
struct StreamChoice {
  bool output = false;
  bool errors = false;
  bool operator==(const StreamChoice&) const = default;
};

/// Parses a choice for every local rank: "3", or "0:1,1:2", in which ranks that are not named have none.
base::Result<std::vector<StreamChoice>> parse_stream_choices(const std::string& flag, const std::string& text,
                                                             int local_world_size);

/// Parses "0,2"; an empty text means every rank.
base::Result<std::optional<std::set<int>>> parse_local_ranks_filter(const std::string& text);

/// One stream of one worker. With `file`, the stream goes there; with `tee` it is also shown, line by line with a prefix. Without
/// a file it goes to the launcher's own stream, or nowhere if `silent`.
struct StreamRoute {
  std::string file;
  bool tee = false;
  bool silent = false;
};

/// Copies lines of all workers that contain one of the texts to a file of the attempt's folder.
struct FilteredLogs {
  std::vector<std::string> output_texts;
  std::vector<std::string> error_texts;
};

/// Parses "apple,orange", the value of --duplicate-stdout-filters. Two commas mean one comma in a text; empty texts are left out.
std::vector<std::string> parse_filters(const std::string& text);

struct WorkerRoutes {
  StreamRoute output;
  StreamRoute errors;
  std::string error_file;
};

struct LogOptions {
  /// The value of --log-dir; see create_log_folder().
  std::string folder;
  std::vector<StreamChoice> redirects;
  std::vector<StreamChoice> tee;
  std::optional<std::set<int>> shown_ranks;
  FilteredLogs filters;
};

/// The file in which a worker may describe its failure; "" without files.
std::string error_file_of(const std::string& attempt_folder, int local_rank);

/// Returns the routes of every local rank below `attempt_folder`; "" means no files (--log-dir /dev/null).
std::vector<WorkerRoutes> plan_worker_routes(const LogOptions& options, const std::string& attempt_folder);

/// The folder of one run of the launcher, with one folder per attempt.
struct LogFolder {
  /// The absolute path; "" if there are no files.
  std::string path;
  /// The folder above it, if it was made for this run alone; else "".
  std::string temporary_root;
};

/// Creates `<log_dir>/<run_id>_XXXXXX`. If `log_dir` is empty, creates it below a new folder `torchelastic_XXXXXX` of TMPDIR.
/// With "/dev/null" creates no folder.
base::Result<LogFolder> create_log_folder(const std::string& log_dir, const std::string& run_id);

/// The error for a log folder that cannot be created.
base::Error no_log_folder(const std::string& log_dir, const base::Error& cause);

/// Creates `attempt_<attempt>/<local_rank>` for every rank and returns the attempt's folder; "" if there are no files.
base::Result<std::string> create_attempt_folder(const LogFolder& folder, int attempt, int local_world_size);

/// Removes a temporary root if no worker has written to it.
void remove_if_unused(const LogFolder& folder);

}  // namespace cohort::elastic
