/// EventFile: one file of events in a run's folder, which TensorBoard watches.
///
/// Records wait in memory until there are `max_queue` of them, or until `flush_interval` has passed since the last write, which
/// the next call finds out. They are written whole, in one write: a killed program leaves no half of one.
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
  std::chrono::seconds flush_interval{120};  ///< of any size
  std::string filename_suffix = {};
  /// Events of this step and later ones in files of this folder that were written before do not count any more.
  std::optional<int64_t> purge_step = {};
};

class EventFile {
 public:
  /// Makes the folder, mode 0700, and a file in it that is not there yet, mode 0600.
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
