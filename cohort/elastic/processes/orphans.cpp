#include "cohort/elastic/processes/orphans.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <string_view>

#include "cohort/base/text/text.h"

namespace cohort::elastic {
namespace {

// The limit for reading the environment of a process. It may be of any size, and the variable may be anywhere in it.
constexpr size_t kMostEnvironment = 4 * 1024 * 1024;

// Each thread has its own children.
std::set<pid_t> children_of(pid_t parent) {
  std::set<pid_t> children;
  std::error_code error;
  const std::string tasks = fmt::format("/proc/{}/task", parent);
  for (std::filesystem::directory_iterator task(tasks, error), end; !error && task != end; task.increment(error)) {
    const auto text = base::read_file(task->path().string() + "/children");
    if (!text) continue;
    for (const std::string& word : base::split(*text, ' ')) {
      if (const auto pid = base::parse_int(base::trim(word))) children.insert(static_cast<pid_t>(*pid));
    }
  }
  return children;
}

void add_with_descendants(pid_t pid, std::vector<SessionMember>* found) {
  if (const auto member = read_member(pid)) found->push_back(*member);
  for (const pid_t child : children_of(pid)) add_with_descendants(child, found);
}

bool has_mark(const std::string& environment, const std::string& line) {
  return environment.starts_with(line + '\0') || environment.find('\0' + line + '\0') != std::string::npos;
}

}  // namespace

Orphans Orphans::adopt() {
  Orphans orphans;
  orphans.earlier_ = children_of(::getpid());
  (void)::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);  // kernels before 3.4 do not have it
  return orphans;
}

std::vector<SessionMember> Orphans::find(const std::set<pid_t>& workers) const {
  std::vector<SessionMember> found;
  for (const pid_t child : children_of(::getpid())) {
    if (workers.contains(child) || earlier_.contains(child)) continue;
    if (::waitpid(child, nullptr, WNOHANG) != child) add_with_descendants(child, &found);
  }
  return found;
}

std::string make_agent_mark() {
  std::random_device random;
  return fmt::format("{}-{:08x}{:08x}", ::getpid(), random(), random());
}

std::vector<SessionMember> marked_processes(const std::string& mark) {
  const std::string line = fmt::format("{}={}", kAgentVariable, mark);
  std::vector<SessionMember> members;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const auto pid = base::parse_int(entry->path().filename().string());
    if (!pid) continue;
    const auto environment = base::read_file(entry->path().string() + "/environ", kMostEnvironment);
    if (!environment || !has_mark(*environment, line)) continue;
    if (const auto member = read_member(static_cast<pid_t>(*pid))) members.push_back(*member);
  }
  return members;
}

}  // namespace cohort::elastic
