// recovery: from a worker's crash to the workers that take its place, and to their first finished collective. Workers write the
// time of the one clock of this machine into a file.
#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "benchmarks/launcher/launchers.h"
#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "build_facts.h"

namespace cohort::bench {
namespace {

/// Milliseconds from "crash NANOSECONDS" to the last "done NANOSECONDS" of the two workers that came after it.
double gap_in(const std::string& path) {
  std::istringstream lines(base::read_file(path).value());
  std::string what;
  long long time = 0;
  long long crash = 0;
  long long done = 0;
  int num_done = 0;
  while (lines >> what >> time) {
    if (what == "crash") crash = time;
    if (what == "done") done = std::max(done, time), ++num_done;
  }
  if (crash == 0 || num_done != 2) throw std::runtime_error("the workers did not recover: " + lines.str());
  return static_cast<double>(done - crash) / 1e6;
}

using Launcher = std::vector<std::string> (*)(const Settings& settings, const std::vector<std::string>& words);

/// The gap of one run of `launcher` with one restart. `words` is the worker's command line; the file's path follows it.
double time_recovery(const Settings& settings, Launcher launcher, const std::vector<std::string>& words) {
  const ScratchFolder folder;
  std::vector<std::string> flags = one_node_flags(2, folder.path() + "/logs");
  flags.push_back("--max-restarts=1");
  flags.insert(flags.end(), words.begin(), words.end());
  flags.push_back(folder.path() + "/times");
  time_program(launcher(settings, flags));
  return gap_in(folder.path() + "/times");
}

/// torchrun's agent keeps one store for all restarts, and restarted ranks, C++ and Python alike, meet there what those that are
/// gone have left: they fail. This switch gives them one of their own, hosted by worker 0.
std::vector<std::string> torchrun_with_new_stores(const Settings&, const std::vector<std::string>& words) {
  std::vector<std::string> command = torchrun(words);
  command.insert(command.begin(), {"env", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"});
  return command;
}

}  // namespace

std::vector<Row> run_recovery(const Settings& settings) {
  const std::string& folder = settings.program_folder;
  const std::vector<std::string> plain = {"--no-python", folder + "/cohort-bench-crash-worker"};
  const std::vector<std::string> rank = {"--no-python", folder + "/cohort-bench-crash-rank"};
  const std::vector<std::string> python_rank = {std::string(kSourceDir) + "/benchmarks/launcher/crash_rank.py"};
  const auto under = [&](Launcher launcher, const std::vector<std::string>& words) {
    return [&settings, launcher, words] { return time_recovery(settings, launcher, words); };
  };
  const bool warms_up = !settings.is_quick;  // which has no time for it
  auto rows = compare_launchers({.name = "crash-to-processes/workers=2",
                                 .unit = "ms",
                                 .ours = under(our_launcher, plain),
                                 .rivals = {{"torchrun", under(torchrun_with_new_stores, plain)}}},
                                settings.rounds(12, 3), warms_up);
  // First the same ranks, so that only the launcher differs; then what PyTorch offers.
  const auto collectives =
      compare_launchers({.name = "crash-to-collective/workers=2",
                         .unit = "ms",
                         .ours = under(our_launcher, rank),
                         .rivals = {{"torchrun-same-rank", under(torchrun_with_new_stores, rank)},
                                    {"torchrun-python-gloo", under(torchrun_with_new_stores, python_rank)}}},
                        settings.rounds(12, 2), warms_up);
  rows.insert(rows.end(), collectives.begin(), collectives.end());
  return rows;
}

}  // namespace cohort::bench
