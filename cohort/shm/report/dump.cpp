#include "cohort/shm/report/dump.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/log/log.h"
#include "cohort/base/log/terminal.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "cohort/shm/report/formats.h"
#include "cohort/shm/report/registry.h"

namespace cohort::shm {
namespace {

using Clock = std::chrono::steady_clock;

enum class When : uint8_t { kTimeout, kExit, kNever };

When when_to_dump() {
  const std::string word = base::get_env("COHORT_TRACE_DUMP").value_or("");
  if (word == "exit") return When::kExit;
  if (word == "never") return When::kNever;
  if (!word.empty() && word != "timeout") {
    base::warn_once("COHORT_TRACE_DUMP=\"" + word + "\" is neither timeout, exit nor never" +
                    base::did_you_mean(word, {"timeout", "exit", "never"}) + "; using timeout");
  }
  const auto on_timeout = base::env_bool("TORCH_NCCL_DUMP_ON_TIMEOUT");
  return on_timeout && on_timeout->value_or(true) ? When::kTimeout : When::kNever;
}

std::optional<std::string> first_of(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    auto value = base::get_env(name);
    if (value && !value->empty()) return value;
  }
  return std::nullopt;
}

/// Returns a folder that only this user can write to: another user may have created one with that name in a temporary folder.
std::string private_folder() {
  const std::string parent = base::temporary_folder();
  std::string folder = fmt::format("{}/cohort_trace_{}", parent, ::geteuid());
  ::mkdir(folder.c_str(), 0700);
  struct stat status {};
  const bool is_ours = ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
                       status.st_uid == ::geteuid() && (status.st_mode & 022) == 0;
  if (is_ours) return folder;
  const auto other = base::make_unique_directory(folder + "_");
  return other ? *other : parent;
}

std::string default_prefix() {
  if (auto prefix = first_of({"COHORT_TRACE_FILE"})) return *prefix;
  return fmt::format("{}/{}_rank_", private_folder(), ::getppid());
}

/// Puts the file beside the others, under a name of which neither is a prefix of the other.
std::string pickle_prefix(const std::string& prefix) {
  if (auto own = first_of({"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"})) return *own;
  const size_t name = prefix.rfind('/') + 1;
  return prefix.substr(0, name) + "torch_" + prefix.substr(name);
}

/// Returns the ranks that cannot write their own files, and this process's ranks.
std::vector<int> ranks_to_pickle(const ProcessTrace& trace) {
  std::vector<int> ranks = trace.own_ranks;
  for (const GroupTrace& group : trace.groups) {
    for (const RankTrace& rank : group.ranks) {
      if (rank.presence == RankTrace::Presence::kGone) {
        ranks.push_back(group.global_ranks[static_cast<size_t>(rank.rank)]);
      }
    }
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

bool write(const std::string& path, const std::string& data) {
  base::Result<void> written = base::write_file_atomically(path, data);
  if (!written) base::log_warning("the flight recorder's dump is incomplete: " + written.error().describe());
  return written.ok();
}

std::string write_files(std::string prefix, const std::string& reason) {
  // One dump at a time, because several would write the same files.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (prefix.empty()) prefix = default_prefix();
  const ProcessTrace trace = read_process_trace(reason);
  const size_t name = prefix.rfind('/');
  if (name != std::string::npos && name > 0) {
    if (auto made = base::make_directories(prefix.substr(0, name)); !made) {
      base::log_warning("no flight recorder dump: " + made.error().describe());
      return "";
    }
  }
  const std::string who = trace.rank < 0 ? fmt::format("pid{}", trace.pid) : std::to_string(trace.rank);
  const std::string text_path = prefix + who + ".txt";
  // Writes the text first: errors name it, and the other files need more memory.
  const bool has_text = write(text_path, to_text(trace));
  write(prefix + who + ".json", to_json(trace));
  write(prefix + who + ".trace.json", to_chrome_trace(trace));
  for (const int rank : ranks_to_pickle(trace))
    write(pickle_prefix(prefix) + std::to_string(rank), to_pickle(trace, rank));
  return has_text ? text_path : "";
}

}  // namespace

std::string dump_traces(const std::string& prefix, const std::string& reason) noexcept {
  try {
    return write_files(prefix, reason);
  } catch (const std::exception& error) {
    try {
      base::log_warning(std::string("no flight recorder dump: ") + error.what());
    } catch (const std::exception&) {
      return {};  // no memory for a line
    }
    return {};
  }
}

std::string note_timeout(const std::string& operation) noexcept {
  static std::mutex mutex;
  static std::optional<Clock::time_point> dumped_at;
  try {
    static std::string& path = *new std::string;  // never destroyed, because operations run until the program's end
    const std::lock_guard lock(mutex);
    if (dumped_at) return Clock::now() - *dumped_at < std::chrono::seconds(10) ? path : "";
    if (when_to_dump() == When::kNever) return "";
    path = dump_traces("", "a timeout: " + operation);
    dumped_at = Clock::now();
    return path;
  } catch (const std::exception&) {
    return {};
  }
}

void say_where(const std::string& text_path) noexcept {
  try {
    const std::string line = fmt::format(
        "[cohort] pid {}: flight recorder written to {} (and .json, .trace.json beside it)\n", ::getpid(), text_path);
    base::write_message(line);
  } catch (const std::exception&) {
    return;  // no memory for a line
  }
}

bool wants_dump_at_exit() { return when_to_dump() == When::kExit; }

void dump_at_exit() {
  static std::once_flag once;
  std::call_once(once, [] {
    std::atexit([] {
      const std::string path = dump_traces("", "the end of the process");
      if (!path.empty()) say_where(path);
    });
  });
}

}  // namespace cohort::shm
