/// EventFile: a file of events in a run's folder, which TensorBoard watches.
///
/// Records wait in memory until there are `max_queue` of them, or until the first call after `flush_interval` has passed since
/// the last write. All are written at once and whole: a killed program leaves no incomplete record.
/// Thread-safety: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "cohort/base/error/result.h"
#include "cohort/base/system/deadline.h"
#include "cohort/extras/report/events/proto_message.h"
#include "cohort/report/records/append_file.h"

namespace cohort::report {

struct EventFileOptions {
  int64_t max_queue = 10;
  std::chrono::seconds flush_interval{120};  ///< any value
  std::string filename_suffix = {};
  /// Tells TensorBoard to ignore earlier events of this step and later ones in this folder.
  std::optional<int64_t> purge_step = {};
};

class EventFile {
 public:
  /// Makes the folder, mode 0700, and a new file in it, mode 0600.
  static base::Result<EventFile> create(const std::string& folder, const EventFileOptions& options = {});

  const std::string& path() const { return file_.path(); }
  base::Result<void> add(const ProtoMessage& event);
  base::Result<void> flush();

 private:
  EventFile(AppendFile file, EventFileOptions options) : file_(std::move(file)), options_(std::move(options)) {}
  void begin_interval();

  AppendFile file_;
  EventFileOptions options_;
  std::string pending_;
  int64_t num_pending_ = 0;
  base::Moment flush_at_;
};

}  // namespace cohort::report
