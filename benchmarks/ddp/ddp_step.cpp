// ddp-step: measures a training step on 2 ranks, one thread each, on our backend.
//
// One C++ team holds copies of each case's module (ours, c10d::Reducer, ours on Gloo, no DDP), and one Python team holds two (DDP
// on Gloo, no DDP). In each round every variant takes a block of steps while the others sleep; a pair is one round. The time of a
// block is that of the slower rank. Gradients of all DDP variants are compared before anything is timed; a block begins with
// steps that are not timed.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <stdexcept>

#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turns.h"
#include "build_facts.h"
#include "cohort/base/text/text.h"

namespace cohort::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Numbers of steps of a block that are not timed, as they refill caches after another variant (mlp-4x4096 fits into no cache); of
// timed steps; and of rounds, for the full and the quick form.
struct StepCase {
  const char* name;
  int num_warm;
  int num_steps;
  int num_rounds;
  int num_quick_steps;
  int num_quick_rounds;
  std::chrono::seconds quick_limit;
  /// Whether the quick form has time for it, and for our reducer on Gloo.
  bool is_quick;
  bool is_quick_with_gloo;
  /// Whether the full form measures both reduction while backward runs, and after it.
  bool shows_overlap = false;
  /// Whether the full form measures steps in which ranks only wait for each other.
  bool shows_meeting = false;
};

constexpr StepCase kStepCases[] = {
    {"linear-20x1", 5, 100, 60, 20, 30, std::chrono::seconds(4), true, true, false, true},
    {"mlp-4x1024", 1, 4, 60, 1, 16, std::chrono::seconds(6), true, true, true},
    {"mlp-4x1024-unused", 1, 4, 60, 1, 16, std::chrono::seconds(6), false, false},
    {"mlp-4x1024-view", 1, 4, 60, 1, 16, std::chrono::seconds(6), false, false},
    {"mlp-4x1024-hook", 1, 4, 60, 1, 16, std::chrono::seconds(6), false, false},
    {"resnet18", 1, 1, 40, 1, 8, std::chrono::seconds(8), true, false, true},
    {"resnet18-unused", 1, 1, 40, 1, 8, std::chrono::seconds(8), false, false},
    {"resnet18-view", 1, 1, 40, 1, 8, std::chrono::seconds(8), false, false},
    {"resnet18-hook", 1, 1, 40, 1, 8, std::chrono::seconds(8), false, false},
    {"resnet50-parameters", 1, 1, 40, 1, 8, std::chrono::seconds(8), false, false},
    {"gpt-124m-parameters", 0, 1, 20, 1, 4, std::chrono::seconds(20), false, false},
    {"mlp-4x4096", 0, 1, 30, 1, 6, std::chrono::seconds(12), false, false},
};
// --quick must answer within 45 s: on a busy machine it makes fewer rounds.
constexpr auto kStepQuickLimit = std::chrono::seconds(38);

std::optional<Team> start_python_team(const std::string& folder) {
  const std::string python = find_python();
  if (python.empty()) return std::nullopt;
  const std::string program = std::string(kSourceDir) + "/benchmarks/ddp/ddp_step_rank.py";
  return Team({.name = "python", .folder = folder, .command = {python, program}});
}

// Sums and sums of squares must agree; those of the plain step must not, as ranks see different data.
void verify_gradients(const std::vector<Variant>& variants) {
  std::string expected;
  for (const Variant& variant : variants) {
    const auto sums = variant.team->ask("verify " + variant.command);
    const bool is_plain = variant.command == "plain" || variant.command == "meeting";
    if (agree(sums[0], sums[1]) == is_plain) {
      throw std::runtime_error(fmt::format("{}: gradients of the ranks are {} ({}; {})", variant.name,
                                           is_plain ? "equal without DDP" : "not equal", sums[0], sums[1]));
    }
    if (is_plain) continue;
    if (expected.empty()) expected = sums[0];
    if (!agree(sums[0], expected)) {
      throw std::runtime_error(fmt::format("gradients of {} ({}) and {} ({}) differ", variant.name, sums[0],
                                           variants.front().name, expected));
    }
  }
}

BlockPlan plan_of(const StepCase& what, bool is_quick, Clock::time_point end) {
  return {.num_warm = what.num_warm,
          .num_steps = is_quick ? what.num_quick_steps : what.num_steps,
          .num_rounds = is_quick ? what.num_quick_rounds : what.num_rounds,
          .deadline = is_quick ? Clock::now() + what.quick_limit : end,
          .end = end};
}

Row named(Row row, const std::string& case_name, const std::string& rival_name) {
  row.case_name = case_name;
  row.rival_name = rival_name;
  row.unit = "ms";
  return row;
}

// The variant with which a rival is compared: its own steps without DDP.
struct Rival {
  const char* name;
  const char* plain;
  const char* why_absent;  ///< if empty, it has no row when absent
};
constexpr Rival kRivals[] = {{"c10d-reducer", "plain", ""},
                             {"beside-backward", "plain", ""},
                             {"after-backward", "plain", ""},
                             {"meeting", "plain", ""},
                             {"gloo", "plain", "left out by --quick"},
                             {"python-ddp-gloo", "python-plain", "there is no Python with PyTorch in .venv"}};

std::vector<Row> rows_of(const std::string& name, const Times& times) {
  const std::string whole = name + "/ranks=2";
  const std::string added = name + "/added/ranks=2";
  const auto& ours = times.at("ours");
  const auto& plain = times.at("plain");
  std::vector<Row> rows{named(compare_times(ours, plain), whole, "plain")};
  for (const bool is_added : {false, true}) {
    const AddedTimes own{.ours = ours, .ours_plain = plain, .rival = ours, .rival_plain = plain};
    Row without_figure;
    without_figure.ours = is_added ? compare_added_times(own).ours : rows.front().ours;
    for (const Rival& rival : kRivals) {
      Row row = without_figure;
      if (!times.contains(rival.name) && !*rival.why_absent) continue;
      if (!times.contains(rival.name)) {
        row.note = rival.why_absent;
      } else if (is_added) {
        row = compare_added_times(
            {.ours = ours, .ours_plain = plain, .rival = times.at(rival.name), .rival_plain = times.at(rival.plain)});
      } else {
        row = compare_times(ours, times.at(rival.name));
      }
      rows.push_back(named(row, is_added ? added : whole, rival.name));
    }
  }
  return rows;
}

// For cases that the machine was too busy to reach.
std::vector<Row> rows_without_time(const std::string& name) {
  std::vector<Row> rows;
  for (const char* rival : {"plain", "c10d-reducer", "gloo", "python-ddp-gloo"}) {
    Row row;
    row.note = "no time left";
    rows.push_back(named(row, name + "/ranks=2", rival));
  }
  return rows;
}

std::vector<std::string> step_case_names() {
  std::vector<std::string> names;
  for (const StepCase& what : kStepCases) names.emplace_back(what.name);
  return names;
}

Times run_step_case(const StepCase& what, const std::vector<Variant>& variants, bool is_quick, Clock::time_point end) {
  for (const Variant& variant : variants) variant.team->ask(fmt::format("copy {} {}", variant.command, what.name));
  verify_gradients(variants);
  // The second step rebuilds the buckets.
  for (const Variant& variant : variants) variant.team->ask("run " + variant.command + " 0 1");
  auto times = take_turns(variants, plan_of(what, is_quick, end));
  for (const Variant& variant : variants) variant.team->ask("drop");
  return times;
}

}  // namespace

std::vector<Row> run_ddp_step(const Settings& settings) {
  const auto begin = Clock::now();
  check_case(settings.only_case, step_case_names());
  const auto deadline = settings.is_quick ? begin + kStepQuickLimit : Clock::time_point::max();
  const ScratchFolder folder;
  Team cpp({.name = "cpp", .folder = folder.path(), .command = {settings.program, kDdpStepRank, settings.backend}});
  auto python = start_python_team(folder.path());
  std::vector<Row> rows;
  for (const StepCase& what : kStepCases) {
    if (!settings.only_case.empty() && settings.only_case != what.name) continue;
    if (settings.is_quick && settings.only_case.empty() && !what.is_quick) continue;
    if (Clock::now() > deadline) {
      for (Row& row : rows_without_time(what.name)) rows.push_back(std::move(row));
      continue;
    }
    std::vector<Variant> variants{{"ours", &cpp, "ours"}, {"c10d-reducer", &cpp, "c10d"}, {"plain", &cpp, "plain"}};
    if (!settings.is_quick || what.is_quick_with_gloo) variants.push_back({"gloo", &cpp, "gloo"});
    const bool shows_overlap = what.shows_overlap && !settings.is_quick && settings.backend == "shm";
    if (shows_overlap) variants.push_back({"beside-backward", &cpp, "beside"});
    if (shows_overlap) variants.push_back({"after-backward", &cpp, "after"});
    if (what.shows_meeting && !settings.is_quick) variants.push_back({"meeting", &cpp, "meeting"});
    if (python) variants.push_back({"python-ddp-gloo", &*python, "ddp"});
    if (python) variants.push_back({"python-plain", &*python, "plain"});
    for (Row& row : rows_of(what.name, run_step_case(what, variants, settings.is_quick, deadline))) {
      rows.push_back(std::move(row));
    }
  }
  if (settings.is_quick) {
    fmt::print(
        "quick: short blocks, 6 to 30 pairs a case, fewer where the machine is busy; linear-20x1, mlp-4x1024 and "
        "resnet18 only, and resnet18 without gloo\n");
  }
  return rows;
}

}  // namespace cohort::bench
