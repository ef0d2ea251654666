// python: training steps of unmodified PyTorch programs on 2 ranks, one thread each, on backend "cohort", beside Gloo and beside
// PyTorch's backend "fake", which does not communicate: the floor.
//
// One team per backend runs the same program, python_step_rank.py. In each round every team takes a block of steps while the
// others sleep; a pair is one round. The time of a block is that of the slower rank; the ranks of "fake" also work at the same
// time, so that they share the memory's bandwidth like the others. Losses and gradients of cohort and Gloo are compared before
// anything is timed.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>

#include "benchmarks/python/python_table.h"
#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turns.h"
#include "build_facts.h"
#include "cohort/base/system/env.h"

namespace cohort::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

struct PythonCase {
  const char* name;
  int num_warm;
  int num_steps;
  int num_rounds;
  int num_quick_steps;
  int num_quick_rounds;
  seconds quick_limit;
  /// Whether the quick form has time for it.
  bool is_quick;
};

constexpr PythonCase kPythonCases[] = {
    {"ddp/linear", 5, 100, 60, 30, 30, seconds(4), true},
    {"ddp/mlp-4x1024", 1, 4, 60, 2, 20, seconds(6), true},
    {"ddp/mlp-4x4096", 0, 1, 30, 1, 10, seconds(20), false},
    {"fsdp/block-1024/tokens=64", 0, 2, 40, 1, 10, seconds(8), true},
    {"fsdp/block-1024/tokens=512", 0, 1, 30, 1, 6, seconds(20), false},
    {"tp/block-1024/tokens=64", 0, 4, 60, 1, 15, seconds(6), true},
    {"tp/block-1024/tokens=512", 0, 1, 60, 1, 10, seconds(20), false},
};
constexpr auto kPythonQuickLimit = seconds(38);

constexpr const char* kOurs = "cohort";
constexpr const char* kFloor = "fake";
constexpr const char* kRival = "gloo";

std::vector<std::string> python_case_names() {
  std::vector<std::string> names;
  for (const PythonCase& what : kPythonCases) names.emplace_back(what.name);
  return names;
}

std::string package_folder(const Settings& settings) {
  return std::filesystem::path(settings.program_folder + "/../python").lexically_normal().string();
}

bool has_package(const std::string& folder) {
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/torchcohort", missing)) {
    if (entry.path().filename().string().starts_with("_C.") && entry.path().extension() == ".so") return true;
  }
  return false;
}

// Teams by backend, and why one is missing.
struct PythonTeams {
  ScratchFolder folder;
  std::vector<std::unique_ptr<Team>> teams;
  std::vector<Variant> variants;
  std::string why_absent;

  void start(const std::string& backend, const std::string& python, const std::string& packages) {
    auto path = base::get_env("PYTHONPATH").value_or("");
    path = path.empty() ? packages : packages + ":" + path;
    const std::string program = std::string(kSourceDir) + "/benchmarks/python/python_step_rank.py";
    teams.push_back(std::make_unique<Team>(TeamOptions{.name = backend,
                                                       .folder = folder.path(),
                                                       .command = {python, program, backend},
                                                       .environment = {{"PYTHONPATH", path}}}));
    variants.push_back({backend, teams.back().get(), "model"});
  }
};

void start_python_teams(PythonTeams& teams, const Settings& settings) {
  const auto python = find_python();
  if (python.empty()) {
    teams.why_absent = "there is no Python with PyTorch in .venv";
    return;
  }
  const auto packages = package_folder(settings);
  if (has_package(packages)) {
    teams.start(kOurs, python, packages);
  } else {
    teams.why_absent = "torchcohort is not built: " + packages + "/torchcohort has no _C.*.so";
  }
  teams.start(kFloor, python, packages);
  teams.start(kRival, python, packages);
}

void verify_sums(const std::string& case_name, const std::vector<Variant>& variants) {
  std::map<std::string, std::vector<std::string>> answers;
  for (const Variant& variant : variants) answers[variant.name] = variant.team->ask("verify " + variant.command);
  for (const auto& [backend, sums] : answers) {
    for (size_t rank = 0; rank < sums.size(); ++rank) {
      const auto& expected = answers.at(kRival)[rank];
      if (agree(sums[rank], expected) != (backend == kFloor)) continue;
      throw std::runtime_error(fmt::format("{}: loss and gradient sums of rank {} are {} on {} and {} on {}{}",
                                           case_name, rank, sums[rank], backend, expected, kRival,
                                           backend == kFloor ? ": the case communicates nothing" : ""));
    }
  }
}

Times run_python_case(const PythonCase& what, const PythonTeams& teams, bool is_quick, Clock::time_point end) {
  const auto& variants = teams.variants;
  for (const Variant& variant : variants) variant.team->ask(fmt::format("copy {} {}", variant.command, what.name));
  verify_sums(what.name, variants);
  auto times = take_turns(variants, {.num_warm = what.num_warm,
                                     .num_steps = is_quick ? what.num_quick_steps : what.num_steps,
                                     .num_rounds = is_quick ? what.num_quick_rounds : what.num_rounds,
                                     .deadline = is_quick ? Clock::now() + what.quick_limit : end,
                                     .end = end});
  for (const Variant& variant : variants) variant.team->ask("drop");
  return times;
}

}  // namespace

std::vector<Row> run_python(const Settings& settings) {
  const auto end = settings.is_quick ? Clock::now() + kPythonQuickLimit : Clock::time_point::max();
  check_case(settings.only_case, python_case_names());
  PythonTeams teams;
  start_python_teams(teams, settings);
  std::vector<Row> rows;
  for (const PythonCase& what : kPythonCases) {
    if (!settings.only_case.empty() && settings.only_case != what.name) continue;
    if (settings.is_quick && settings.only_case.empty() && !what.is_quick) continue;
    const bool is_late = Clock::now() > end;
    const auto times =
        teams.variants.empty() || is_late ? Times() : run_python_case(what, teams, settings.is_quick, end);
    const auto why_absent = is_late ? "no time left" : teams.why_absent;
    for (Row& row : python_rows(what.name, times, why_absent)) rows.push_back(std::move(row));
  }
  if (settings.is_quick)
    fmt::print("quick: short blocks, fewer cases, 10 to 30 pairs each or what the machine allows\n");
  return rows;
}

void print_python(const std::vector<Row>& rows) {
  fmt::print("{}\n", python_table(rows));
  std::fflush(stdout);
}

}  // namespace cohort::bench
