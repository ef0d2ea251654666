#include "cohort/rendezvous/environment/mpi_proxy.h"

#include <fmt/format.h>

#include <string>

#include "cohort/base/file/file.h"
#include "cohort/base/text/text.h"
#include "cohort/rendezvous/environment/scheduler_environment.h"

namespace cohort::rendezvous {
namespace {

constexpr int kMaxAncestors = 64;

struct Ancestor {
  std::string name;
  int parent = 0;
};

// Parses /proc/<pid>/stat, "4711 (name) S 4710 ...". Names may have spaces and brackets.
std::optional<Ancestor> look_up(int pid) {
  const auto text = base::read_file(fmt::format("/proc/{}/stat", pid));
  if (!text) return std::nullopt;
  const auto open = text->find('('), close = text->rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  const auto words = base::split(text->substr(close + 1), ' ');
  const auto parent = words.size() > 2 ? base::parse_int(words[2]) : std::nullopt;
  if (!parent) return std::nullopt;
  return Ancestor{.name = text->substr(open + 1, close - open - 1), .parent = static_cast<int>(*parent)};
}

}  // namespace

std::optional<int> port_of_mpi_proxy(int pid) {
  for (int i = 0; i < kMaxAncestors && pid > 1; ++i) {
    const auto process = look_up(pid);
    if (!process) return std::nullopt;
    if (process->name == "hydra_pmi_proxy") return port_of_job(fmt::format("hydra-{}", pid));
    pid = process->parent;
  }
  return std::nullopt;
}

}  // namespace cohort::rendezvous
