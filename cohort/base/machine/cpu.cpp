#include "cohort/base/machine/cpu.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "cohort/base/file/file.h"
#include "cohort/base/machine/cpu_topology.h"
#include "cohort/base/text/text.h"

namespace cohort::base {
namespace {

int cores_in_affinity_mask() {
  const size_t count = allowed_cpus().size();
  return count > 0 ? static_cast<int>(count) : std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

std::optional<std::string> first_line(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text) return std::nullopt;
  return trim(split(*text, '\n').front());
}

std::optional<double> quota_of(const std::string& quota, const std::string& period) {
  const auto quota_us = parse_int(quota);
  const auto period_us = parse_int(period);
  if (!quota_us || !period_us || *quota_us <= 0 || *period_us <= 0) return std::nullopt;
  return static_cast<double>(*quota_us) / static_cast<double>(*period_us);
}

std::optional<double> quota_in_folder(const std::string& folder, bool version2) {
  if (version2) {
    const auto line = first_line(folder + "/cpu.max");
    if (!line) return std::nullopt;
    const std::vector<std::string> words = split(*line, ' ');
    return words.size() == 2 ? quota_of(words[0], words[1]) : std::nullopt;
  }
  const auto quota = first_line(folder + "/cpu.cfs_quota_us");
  const auto period = first_line(folder + "/cpu.cfs_period_us");
  return quota && period ? quota_of(*quota, *period) : std::nullopt;
}

// A limit may be set in any folder between the process's own group and the root. Inside a container the host's path is not
// visible, and the root is the container's own group; walking up ends there in both cases.
void take_smallest_quota(const std::string& root, std::string path, bool version2, std::optional<double>& limit) {
  for (;;) {
    const auto quota = quota_in_folder(root + path, version2);
    if (quota) limit = limit ? std::min(*limit, *quota) : *quota;
    const size_t slash = path.find_last_of('/');
    if (path.empty() || slash == std::string::npos) return;
    path.resize(slash);
  }
}

}  // namespace

std::optional<double> cgroup_core_limit(const std::string& mount, const std::string& membership) {
  std::optional<double> limit;
  for (const std::string& line : split(membership, '\n')) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    while (path.ends_with('/')) path.pop_back();
    if (controllers.empty()) {
      for (const char* root : {"", "/unified"}) take_smallest_quota(mount + root, path, true, limit);
      continue;
    }
    const std::vector<std::string> names = split(controllers, ',');
    if (std::find(names.begin(), names.end(), "cpu") == names.end()) continue;
    for (const std::string& root : {std::string("/cpu"), "/" + controllers}) {
      take_smallest_quota(mount + root, path, false, limit);
    }
  }
  return limit;
}

int available_cores() {
  const int allowed = cores_in_affinity_mask();
  const Result<std::string> membership = read_file("/proc/self/cgroup");
  const auto limit = membership ? cgroup_core_limit("/sys/fs/cgroup", *membership) : std::nullopt;
  if (!limit || *limit >= allowed) return allowed;
  return std::max(1, static_cast<int>(*limit));
}

int default_threads_per_rank(int ranks_on_host) { return std::max(1, available_cores() / std::max(1, ranks_on_host)); }

}  // namespace cohort::base
