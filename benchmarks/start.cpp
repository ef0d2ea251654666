// start: from the launcher's command line to the end of 2 workers that do nothing. Launchers alternate.
#include <filesystem>

#include "benchmarks/question.h"
#include "benchmarks/team.h"
#include "build_facts.h"

namespace cohort::bench {

std::vector<Row> run_start(const Settings& settings) {
  const std::vector<std::string> flags{"--standalone", "--nproc-per-node", "2", "--no-python", "true"};
  std::vector<std::string> ours{settings.program_folder + "/cohort", "run"};
  std::vector<std::string> torchrun{std::string(kSourceDir) + "/.venv/bin/torchrun"};
  ours.insert(ours.end(), flags.begin(), flags.end());
  torchrun.insert(torchrun.end(), flags.begin(), flags.end());
  const bool has_torchrun = std::filesystem::exists(torchrun.front());
  time_program(ours);  // afterwards programs and libraries come from the page cache
  if (has_torchrun) time_program(torchrun);
  std::vector<double> our_times, their_times;
  for (int round = 0; round < (settings.is_quick ? 6 : 30); ++round) {
    our_times.push_back(time_program(ours) * 1e3);
    if (has_torchrun) their_times.push_back(time_program(torchrun) * 1e3);
  }
  Row row;
  if (has_torchrun) {
    row = compare_times(our_times, their_times);
  } else {
    row.ours = median(our_times);
  }
  row.case_name = "start/workers=2";
  row.rival_name = "torchrun";
  row.unit = "ms";
  return {row};
}

}  // namespace cohort::bench
