#include "benchmarks/launcher/launchers.h"

#include <filesystem>

#include "benchmarks/support/turn_order.h"
#include "build_facts.h"
#include "cohort/base/net/port.h"

namespace cohort::bench {
namespace {

std::vector<std::string> joined(std::vector<std::string> command, const std::vector<std::string>& words) {
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

std::string torchrun_program() { return std::string(kSourceDir) + "/.venv/bin/torchrun"; }

}  // namespace

std::vector<std::string> our_launcher(const Settings& settings, const std::vector<std::string>& words) {
  return joined({settings.program_folder + "/cohort", "run"}, words);
}

std::vector<std::string> torchrun(const std::vector<std::string>& words) {
  return has_torchrun() ? joined({torchrun_program()}, words) : std::vector<std::string>();
}

bool has_torchrun() { return std::filesystem::exists(torchrun_program()); }

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

std::vector<Row> compare_launchers(const LauncherCase& given, int num_rounds, bool warms_up) {
  std::vector<std::function<double()>> sides = {given.ours};
  if (has_torchrun()) {
    for (const LauncherRival& rival : given.rivals) sides.push_back(rival.measure);
  }
  if (warms_up) measure_in_turns(sides, 1);
  const auto figures = measure_in_turns(sides, num_rounds);
  std::vector<Row> rows;
  for (size_t i = 0; i < given.rivals.size(); ++i) {
    Row row;
    if (has_torchrun()) {
      row = compare_times(figures[0], figures[i + 1]);
    } else {
      row.ours = median(figures[0]);
      row.note = "torchrun is not installed";
    }
    row.case_name = given.name;
    row.rival_name = given.rivals[i].name;
    row.unit = given.unit;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace cohort::bench
