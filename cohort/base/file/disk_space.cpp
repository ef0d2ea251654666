#include "cohort/base/file/disk_space.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <utility>

#include "cohort/base/text/text.h"

namespace cohort::base {

Error with_space_hint(Error error, int reason, const std::string& folder) {
  if (reason == EMFILE) return std::move(error).with_hint("raise the limit of open files (ulimit -n)");
  struct rlimit limit {};
  if (reason == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    return std::move(error).with_hint("files may have at most " + format_bytes(limit.rlim_cur) +
                                      " here (ulimit -f); raise this limit");
  }
  struct statvfs space {};
  if (reason != ENOSPC || statvfs(folder.c_str(), &space) != 0) return error;
  return std::move(error).with_hint("only " + format_bytes(space.f_bavail * space.f_frsize) +
                                    " are free there; free some space, or choose another disk");
}

Result<void> check_space(const std::string& folder, uint64_t num_bytes, const std::string& what) {
  std::string place = folder.empty() ? "." : folder;
  struct statvfs space {};
  while (statvfs(place.c_str(), &space) != 0) {
    if (errno != ENOENT || place == "." || place == "/") return {};  // the write itself will report why it fails
    const std::string above = std::filesystem::path(place).parent_path().string();
    place = above.empty() ? "." : above == place ? "/" : above;
  }
  if (num_bytes / std::max<uint64_t>(space.f_frsize, 1) <= space.f_bavail) return {};
  Error error("cannot take " + format_bytes(num_bytes) + " for " + what + ": " + errno_text(ENOSPC));
  return with_space_hint(std::move(error), ENOSPC, place);
}

namespace {

std::atomic<bool> survives{false};

}  // namespace

void survive_size_limit() {
  static const bool is_changed = [] {
    struct sigaction action {};
    if (::sigaction(SIGXFSZ, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return false;
    action.sa_handler = SIG_IGN;
    return ::sigaction(SIGXFSZ, &action, nullptr) == 0;
  }();
  survives = is_changed;
}

bool has_size_limit_survived() { return survives; }

}  // namespace cohort::base
