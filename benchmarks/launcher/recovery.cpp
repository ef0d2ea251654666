// recovery: the time from a worker's crash to its successors' start, to their first completed collective, and to the next
// completed training step; and the cost of keeping states for that. Workers write the time of this machine's clock into a file.
#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "benchmarks/launcher/launchers.h"
#include "benchmarks/support/question.h"
#include "benchmarks/support/statistics.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turn_order.h"
#include "build_facts.h"

namespace cohort::bench {
namespace {

/// Returns the milliseconds from "crash NANOSECONDS" to the last "done NANOSECONDS" of the two workers that followed it.
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

/// Returns the gap of one run of `launcher` with one restart. `words`: the worker's command line, without the file's path.
double time_recovery(const Settings& settings, Launcher launcher, const std::vector<std::string>& words) {
  const ScratchFolder folder;
  std::vector<std::string> flags = one_node_flags(2, folder.path() + "/logs");
  flags.push_back("--max-restarts=1");
  flags.insert(flags.end(), words.begin(), words.end());
  flags.push_back(folder.path() + "/times");
  time_program(launcher(settings, flags));
  return gap_in(folder.path() + "/times");
}

/// Milliseconds of a training run: from the kill to the next step that both ranks have completed; and on rank 0 of keeping a
/// state after a step, and of the step itself, both medians from the third step on.
struct TrainingTimes {
  double gap = 0;
  double keep = 0;
  double step = 0;
};

TrainingTimes training_times_in(const std::string& path) {
  std::istringstream lines(base::read_file(path).value());
  std::string what;
  long long time = 0;
  long long begun = 0;
  long long kept = 0;
  std::vector<double> keeps;
  std::vector<double> steps;
  while (lines >> what >> time) {
    if (what == "begins-to-keep") {
      if (keeps.size() >= 2) steps.push_back(static_cast<double>(time - kept) / 1e6);
      begun = time;
    } else if (what == "kept") {
      keeps.push_back(static_cast<double>(time - begun) / 1e6);
      kept = time;
    }
  }
  if (keeps.size() < 3 || steps.empty()) throw std::runtime_error("the ranks did not train: " + lines.str());
  keeps.erase(keeps.begin(), keeps.begin() + 2);
  return {gap_in(path), median(keeps), median(steps)};
}

/// torchrun's agent keeps one store for all restarts, in which restarted ranks, in C++ and Python, find data of the ranks before
/// them, and fail. This switch gives them a new store, hosted by worker 0.
std::vector<std::string> torchrun_with_new_stores(const Settings&, const std::vector<std::string>& words) {
  std::vector<std::string> command = torchrun(words);
  command.insert(command.begin(), {"env", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"});
  return command;
}

/// A way to keep states, and the results of its runs.
struct Keeping {
  std::string name;
  Launcher launcher;
  std::vector<std::string> words;
  std::string kept;
  std::vector<TrainingTimes> times = {};
};

double time_training(const Settings& settings, Keeping& keeping) {
  const ScratchFolder folder;
  std::vector<std::string> flags = one_node_flags(2, folder.path() + "/logs");
  flags.push_back("--max-restarts=1");
  flags.insert(flags.end(), keeping.words.begin(), keeping.words.end());
  flags.insert(flags.end(), {folder.path() + "/times", keeping.kept, folder.path() + "/checkpoint", "1"});
  time_program(keeping.launcher(settings, flags));
  keeping.times.push_back(training_times_in(folder.path() + "/times"));
  return keeping.times.back().gap;
}

Row compare_keeping(const std::string& name, const std::string& unit, const Keeping& ours, const Keeping& rival,
                    const std::function<double(const TrainingTimes&)>& figure) {
  std::vector<double> own;
  std::vector<double> others;
  for (const TrainingTimes& times : ours.times) own.push_back(figure(times));
  for (const TrainingTimes& times : rival.times) others.push_back(figure(times));
  Row row = compare_times(own, others);
  row.case_name = name;
  row.rival_name = rival.name;
  row.unit = unit;
  return row;
}

/// Trains a GPT of 25 M parameters that keeps a state after every step: in memory, in a file, or with torchrun and torch.save.
std::vector<Row> compare_training(const Settings& settings) {
  const std::vector<std::string> rank = {"--no-python", settings.program_folder + "/cohort-bench-training-rank"};
  std::vector<Keeping> sides = {{"memory", our_launcher, rank, "memory"},
                                {"one-memory-copy", our_launcher, rank, "copy"},
                                {"our-restart-from-disk", our_launcher, rank, "disk"}};
  if (has_torchrun()) {
    sides.push_back({"torchrun-torch.save",
                     torchrun_with_new_stores,
                     {std::string(kSourceDir) + "/benchmarks/launcher/training_rank.py"},
                     "disk"});
  }
  std::vector<std::function<double()>> measures;
  for (Keeping& side : sides) measures.emplace_back([&settings, &side] { return time_training(settings, side); });
  measure_in_turns(measures, settings.rounds(12, 1));
  std::vector<Row> rows;
  for (size_t i = 1; i < sides.size(); ++i) {
    if (sides[i].kept != "copy") {
      rows.push_back(compare_keeping("kill-to-step/gpt-25M/ranks=2", "ms", sides[0], sides[i],
                                     [](const TrainingTimes& times) { return times.gap; }));
    }
    rows.push_back(compare_keeping("keep-a-state/gpt-25M/ranks=2", "ms", sides[0], sides[i],
                                   [](const TrainingTimes& times) { return times.keep; }));
    rows.push_back(compare_keeping("keep-a-state/of-a-step", "%", sides[0], sides[i],
                                   [](const TrainingTimes& times) { return 100 * times.keep / times.step; }));
  }
  return rows;
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
  const bool warms_up = !settings.is_quick;  // the quick form has no time for it
  auto rows = compare_launchers({.name = "crash-to-processes/workers=2",
                                 .unit = "ms",
                                 .ours = under(our_launcher, plain),
                                 .rivals = {{"torchrun", under(torchrun_with_new_stores, plain)}}},
                                settings.rounds(12, 2), warms_up);
  // First the same ranks, so that only the launcher differs; then PyTorch's launcher and ranks.
  const auto collectives =
      compare_launchers({.name = "crash-to-collective/workers=2",
                         .unit = "ms",
                         .ours = under(our_launcher, rank),
                         .rivals = {{"torchrun-same-rank", under(torchrun_with_new_stores, rank)},
                                    {"torchrun-python-gloo", under(torchrun_with_new_stores, python_rank)}}},
                        settings.rounds(12, 1), warms_up);
  rows.insert(rows.end(), collectives.begin(), collectives.end());
  const auto training = compare_training(settings);
  rows.insert(rows.end(), training.begin(), training.end());
  return rows;
}

}  // namespace cohort::bench
