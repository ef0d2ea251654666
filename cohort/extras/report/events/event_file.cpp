#include "cohort/extras/report/events/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "cohort/base/system/host.h"
#include "cohort/extras/report/events/record_framing.h"
#include "cohort/extras/report/events/summaries.h"
#include "cohort/report/records/run_record.h"

namespace cohort::report {
namespace {

// Distinguishes files that this process makes within a second.
int64_t next_file_number() {
  static std::atomic<int64_t> number{0};
  return number++;
}

}  // namespace

base::Result<EventFile> EventFile::create(const std::string& folder, const EventFileOptions& options) {
  if (auto made = make_private_folder(folder); !made) return made.error();
  const double now = wall_time_now();
  const std::string path = fmt::format("{}/events.out.tfevents.{:010d}.{}.{}.{}{}", folder, static_cast<int64_t>(now),
                                       base::host_name(), ::getpid(), next_file_number(), options.filename_suffix);
  auto opened = AppendFile::open(path, AppendFile::Start::kNew);
  if (!opened) return opened.error();
  EventFile file(std::move(opened).value(), options);
  file.begin_interval();
  if (auto added = file.add(file_version_event({.wall_time = now})); !added) return added.error();
  if (options.purge_step) {
    const EventHeader header{.wall_time = now, .step = *options.purge_step};
    if (auto added = file.add(file_version_event(header)); !added) return added.error();
    // Twice, as TensorBoard takes the first one in a folder as its beginning, without forgetting anything.
    for (int i = 0; i < 2; ++i) {
      if (auto added = file.add(session_start_event(header)); !added) return added.error();
    }
  }
  if (auto flushed = file.flush(); !flushed) return flushed.error();
  return file;
}

base::Result<void> EventFile::add(const ProtoMessage& event) {
  pending_ += framed_record(event.bytes());
  ++num_pending_;
  const bool is_due = std::chrono::steady_clock::now() >= flush_at_;
  return num_pending_ >= options_.max_queue || is_due ? flush() : base::Result<void>();
}

void EventFile::begin_interval() {
  constexpr auto kLongest = std::chrono::floor<std::chrono::seconds>(base::kLongestTime);
  flush_at_ = base::deadline_after(std::min(options_.flush_interval, kLongest));
}

base::Result<void> EventFile::flush() {
  // Records are not tried again after an error, as they would pile up on a full disk.
  const std::string records = std::exchange(pending_, {});
  num_pending_ = 0;
  begin_interval();
  return file_.append(records);
}

}  // namespace cohort::report
