#include "benchmarks/support/process_tree.h"

#include <fmt/core.h>

#include <filesystem>
#include <map>
#include <stdexcept>

#include "cohort/base/file/file.h"
#include "cohort/base/text/text.h"

namespace cohort::bench {
namespace {

// Returns the children of all processes of this machine, also of those without children.
std::map<pid_t, std::vector<pid_t>> all_children() {
  std::map<pid_t, std::vector<pid_t>> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto pid = base::parse_int(entry.path().filename().string());
    const auto status = base::read_file((entry.path() / "status").string());
    if (!pid || !status) continue;
    children[static_cast<pid_t>(*pid)];
    children[static_cast<pid_t>(number_after(*status, "PPid"))].push_back(static_cast<pid_t>(*pid));
  }
  return children;
}

}  // namespace

long number_after(const std::string& text, const std::string& name) {
  const size_t at = text.find("\n" + name + ":");
  if (at == std::string::npos) return 0;
  const size_t begin = text.find_first_not_of(" \t", at + name.size() + 2);
  return base::parse_int(text.substr(begin, text.find_first_of(" \n", begin) - begin)).value_or(0);
}

std::vector<pid_t> process_tree(pid_t root, const std::set<pid_t>& without) {
  const auto children = all_children();
  std::vector<pid_t> result;
  for (std::vector<pid_t> left = {root}; !left.empty();) {
    const pid_t pid = left.back();
    left.pop_back();
    const auto found = children.find(pid);
    if (without.contains(pid) || found == children.end()) continue;
    result.push_back(pid);
    left.insert(left.end(), found->second.begin(), found->second.end());
  }
  return result;
}

double tree_memory(pid_t root) {
  long sum_kib = 0;
  for (const pid_t pid : process_tree(root)) {
    const auto rollup = base::read_file(fmt::format("/proc/{}/smaps_rollup", pid));
    if (rollup) sum_kib += number_after(*rollup, "Pss");
  }
  if (sum_kib == 0) throw std::runtime_error(fmt::format("process {} has ended", root));
  return static_cast<double>(sum_kib) / 1024;
}

}  // namespace cohort::bench
