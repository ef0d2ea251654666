#include "benchmarks/launcher/launchers.h"

#include <filesystem>

#include "build_facts.h"
#include "cohort/base/port.h"

namespace cohort::bench {
namespace {

std::vector<std::string> joined(std::vector<std::string> command, const std::vector<std::string>& words) {
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

}  // namespace

std::vector<std::string> our_launcher(const Settings& settings, const std::vector<std::string>& words) {
  return joined({settings.program_folder + "/cohort", "run"}, words);
}

std::vector<std::string> torchrun(const std::vector<std::string>& words) {
  const std::string program = std::string(kSourceDir) + "/.venv/bin/torchrun";
  if (!std::filesystem::exists(program)) return {};
  return joined({program}, words);
}

std::vector<std::string> one_node_flags(int num_workers, const std::string& folder) {
  const int port = base::reserve_port().value().port;
  return {"--nnodes=1:1",
          "--rdzv-backend=c10d",
          "--rdzv-endpoint=localhost:" + std::to_string(port),
          "--rdzv-id=bench",
          "--nproc-per-node=" + std::to_string(num_workers),
          "--log-dir=" + folder,
          "--redirects=3"};
}

}  // namespace cohort::bench
