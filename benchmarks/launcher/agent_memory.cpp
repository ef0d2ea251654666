#include "benchmarks/launcher/agent_memory.h"

#include <fmt/core.h>

#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "cohort/base/file.h"
#include "cohort/base/text.h"

namespace cohort::bench {
namespace {

// The number behind "VmHWM:" in /proc/<pid>/status; 0 where there is none, as for a process that has ended.
long number_after(const std::string& status, const std::string& name) {
  const size_t at = status.find("\n" + name + ":");
  if (at == std::string::npos) return 0;
  const size_t begin = status.find_first_not_of(" \t", at + name.size() + 2);
  return base::parse_int(status.substr(begin, status.find_first_of(" \n", begin) - begin)).value_or(0);
}

struct TreeEntry {
  long peak_kib = 0;
  std::vector<pid_t> children;
};

// All processes of this machine, by pid.
std::map<pid_t, TreeEntry> read_tree() {
  std::map<pid_t, TreeEntry> tree;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto pid = base::parse_int(entry.path().filename().string());
    const auto status = base::read_file((entry.path() / "status").string());
    if (!pid || !status) continue;
    tree[static_cast<pid_t>(*pid)].peak_kib = number_after(*status, "VmHWM");
    tree[static_cast<pid_t>(number_after(*status, "PPid"))].children.push_back(static_cast<pid_t>(*pid));
  }
  return tree;
}

}  // namespace

double launcher_memory(pid_t launcher, const std::set<pid_t>& workers) {
  const auto tree = read_tree();
  long sum_kib = 0;
  for (std::vector<pid_t> left = {launcher}; !left.empty();) {
    const pid_t pid = left.back();
    left.pop_back();
    if (workers.contains(pid)) continue;
    const auto found = tree.find(pid);
    if (found == tree.end()) continue;
    const auto& [peak_kib, children] = found->second;
    sum_kib += peak_kib;
    left.insert(left.end(), children.begin(), children.end());
  }
  if (sum_kib == 0) throw std::runtime_error(fmt::format("process {} has ended", launcher));
  return static_cast<double>(sum_kib) / 1024;
}

}  // namespace cohort::bench
