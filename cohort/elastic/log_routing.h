/// Where each worker's output goes: --redirects, --tee, --local-ranks-filter and the log folder's tree, as torchrun's.
///
///     <log_dir>/<run_id>_XXXXXX/attempt_0/<local_rank>/{stdout.log, stderr.log, error.json}
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cohort/base/result.h"

namespace cohort::elastic {

/// Which of a worker's two streams a setting is about: "0" none, "1" out, "2" err, "3" both.
struct StreamChoice {
  bool output = false;
  bool errors = false;
  bool operator==(const StreamChoice&) const = default;
};

/// A choice for every local rank: "3", or "0:1,1:2" where ranks not named have none.
base::Result<std::vector<StreamChoice>> parse_stream_choices(const std::string& flag, const std::string& text,
                                                             int local_world_size);

/// "0,2"; an empty text means every rank.
base::Result<std::optional<std::set<int>>> parse_local_ranks_filter(const std::string& text);

/// One stream of one worker. With `file`, the stream goes there; with `tee` it is also shown, line by line with a
/// prefix. Without a file it goes to the launcher's own stream, or nowhere if `silent`.
struct StreamRoute {
  std::string file;
  bool tee = false;
  bool silent = false;
};

struct WorkerRoutes {
  StreamRoute output;
  StreamRoute errors;
  std::string error_file;
};

struct LogOptions {
  std::vector<StreamChoice> redirects;
  std::vector<StreamChoice> tee;
  std::optional<std::set<int>> shown_ranks;
};

/// The routes of every local rank below `attempt_folder`; "" means no files at all (--log-dir /dev/null).
std::vector<WorkerRoutes> plan_worker_routes(const LogOptions& options, const std::string& attempt_folder);

/// The folder of one attempt, which holds one folder per local rank.
struct AttemptFolder {
  /// Absolute; "" if there are no files at all.
  std::string path;
  /// The folder above all, if it was made for this run alone; else "".
  std::string temporary_root;
};

/// Creates `<log_dir>/<run_id>_XXXXXX/attempt_0/<local_rank>` for every rank.
/// `log_dir` empty: below a new folder `torchelastic_XXXXXX` of TMPDIR. "/dev/null": no folder.
base::Result<AttemptFolder> create_attempt_folder(const std::string& log_dir, const std::string& run_id,
                                                  int local_world_size);

/// Removes a temporary root that no worker has written to.
void remove_if_unused(const AttemptFolder& folder);

}  // namespace cohort::elastic
