#include "cohort/report/records/old_logs.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>

#include "cohort/base/text/text.h"
#include "cohort/report/records/line_file.h"

namespace cohort::report {
namespace {

bool is_there(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

// A file that the loggers cannot have written has no records: they refuse it, so it stays where it is.
bool has_records(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  bool is_csv = false, has_one = false;
  const auto look = [&](int64_t number, std::string_view line) -> base::Result<void> {
    if (number == 1) is_csv = line.starts_with("step,time");
    has_one = line.starts_with("{\"step\":") || (is_csv && number > 1);
    return has_one ? base::Result<void>(base::Error("no more is needed")) : base::Result<void>();
  };
  static_cast<void>(visit_lines(path, look).ok());
  return has_one;
}

// Returns "runs/metrics.1.csv".
std::string numbered(const std::string& path, int number) {
  const size_t slash = path.find_last_of('/'), name = slash == std::string::npos ? 0 : slash + 1;
  const size_t dot = path.find_last_of('.');
  const size_t at = dot == std::string::npos || dot <= name ? path.size() : dot;
  return fmt::format("{}.{}{}", path.substr(0, at), number, path.substr(at));
}

}  // namespace

base::Result<std::vector<std::string>> keep_old_logs(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  if (std::none_of(paths.begin(), paths.end(), has_records)) return names;
  int number = 1;
  const auto is_taken = [&](const std::string& path) { return is_there(numbered(path, number)); };
  while (std::any_of(paths.begin(), paths.end(), is_taken)) ++number;
  for (const std::string& path : paths) {
    if (!is_there(path)) continue;
    const std::string kept = numbered(path, number);
    if (std::rename(path.c_str(), kept.c_str()) != 0) {
      return base::Error(fmt::format("cannot rename \"{}\" to \"{}\": {}", path, kept, base::errno_text(errno)));
    }
    names.push_back(kept.substr(kept.find_last_of('/') + 1));
  }
  return names;
}

}  // namespace cohort::report
