#include "benchmarks/launcher/agent_memory.h"

#include <fmt/core.h>

#include <stdexcept>

#include "benchmarks/support/process_tree.h"
#include "cohort/base/file/file.h"

namespace cohort::bench {

double launcher_memory(pid_t launcher, const std::set<pid_t>& workers) {
  long sum_kib = 0;
  for (const pid_t pid : process_tree(launcher, workers)) {
    const auto status = base::read_file(fmt::format("/proc/{}/status", pid));
    if (status) sum_kib += number_after(*status, "VmHWM");
  }
  if (sum_kib == 0) throw std::runtime_error(fmt::format("process {} has ended", launcher));
  return static_cast<double>(sum_kib) / 1024;
}

}  // namespace cohort::bench
