#include "cohort/snapshot/free_memory.h"

#include <fmt/format.h>

#include "cohort/base/file/file.h"
#include "cohort/base/text/text.h"

namespace cohort::snapshot {

using base::Error;
using base::Result;

namespace {

std::optional<uint64_t> number_in(const std::string& path) {
  const Result<std::string> text = base::read_file(path);
  const auto number = text ? base::parse_int(base::trim(*text)) : std::nullopt;
  if (!number || *number < 0) return std::nullopt;
  return static_cast<uint64_t>(*number);
}

/// Returns the number after `name` in lines such as "inactive_file 4096" or "MemAvailable:   4096 kB".
uint64_t number_behind(const std::string& text, const std::string& name) {
  for (const std::string& line : base::split(text, '\n')) {
    if (!line.starts_with(name)) continue;
    const std::string rest = base::trim(line.substr(name.size()));
    return static_cast<uint64_t>(std::max(0LL, base::parse_int(rest.substr(0, rest.find(' '))).value_or(0)));
  }
  return 0;
}

struct Names {
  const char* limit;
  const char* usage;
  const char* droppable;
};
constexpr Names kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};
constexpr Names kVersion2{"memory.max", "memory.current", "inactive_file "};
/// Version 1 writes a number a little below this one for "no limit".
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

void take_smaller(std::optional<FreeMemory>& available, uint64_t num_bytes, std::string limited_by) {
  if (!available || num_bytes < available->num_bytes) available = FreeMemory{num_bytes, std::move(limited_by)};
}

/// Checks the group and those above it. If a container does not see its own path, its limits are at the mount itself.
void look_at_groups(std::optional<FreeMemory>& available, const std::string& mount, std::string path,
                    const Names& names) {
  for (;; path = path.substr(0, path.rfind('/'))) {
    const std::string folder = mount + path;
    const auto limit = number_in(folder + "/" + names.limit);
    const auto usage = number_in(folder + "/" + names.usage);
    if (limit && usage && *limit < kNoLimit) {
      const uint64_t droppable = number_behind(
          base::read_file(folder + "/memory.stat").ok() ? *base::read_file(folder + "/memory.stat") : std::string(),
          names.droppable);
      const uint64_t held = *usage - std::min(*usage, droppable);
      take_smaller(available, *limit - std::min(*limit, held),
                   fmt::format("the cgroup \"{}\" ({})", path.empty() ? "/" : path, names.limit));
    }
    if (path.empty()) return;
  }
}

}  // namespace

std::optional<FreeMemory> free_memory(const std::string& mount, const std::string& membership,
                                      const std::string& meminfo) {
  std::optional<FreeMemory> available;
  if (const uint64_t kilobytes = number_behind(meminfo, "MemAvailable:"))
    take_smaller(available, kilobytes << 10, "the host");
  for (const std::string& line : base::split(membership, '\n')) {
    const std::vector<std::string> fields = base::split(line, ':');
    if (fields.size() != 3) continue;
    const std::string path = fields[2] == "/" ? "" : fields[2];
    if (fields[1].empty()) look_at_groups(available, mount, path, kVersion2);
    if (("," + fields[1] + ",").find(",memory,") != std::string::npos) {
      look_at_groups(available, mount + "/memory", path, kVersion1);
    }
  }
  return available;
}

Result<void> check_free_memory(uint64_t num_bytes) {
  const Result<std::string> membership = base::read_file("/proc/self/cgroup");
  const Result<std::string> meminfo = base::read_file("/proc/meminfo");
  const auto available =
      free_memory("/sys/fs/cgroup", membership.ok() ? *membership : "", meminfo.ok() ? *meminfo : "");
  if (!available || num_bytes <= available->num_bytes) return {};
  return Error(fmt::format("{} of memory are needed, and {} has {} left", base::format_bytes(num_bytes),
                           available->limited_by, base::format_bytes(available->num_bytes)))
      .with_hint("give the job more memory, or fewer ranks to this host");
}

}  // namespace cohort::snapshot
