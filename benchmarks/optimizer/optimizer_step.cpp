// optimizer: the optimizer's step alone, one process on all cores, on the parameters of a ResNet-50 (25.6 M numbers in 161
// tensors): ours beside LibTorch's C++ optimizers and Python's, foreach and fused. Sums of parameters after three steps are
// compared before anything is timed: ours and Python's fused ones agree to the last bits of a sum, the others up to rounding.
#include <fmt/core.h>

#include <chrono>
#include <memory>
#include <stdexcept>

#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turns.h"
#include "build_facts.h"

namespace cohort::bench {
namespace {

constexpr const char* kOptimizerCases[] = {"adamw", "adam", "sgd-momentum", "sgd-nesterov", "sgd"};
constexpr int kOptimizerRounds = 30;
constexpr int kQuickOptimizerRounds = 4;

struct OptimizerTeams {
  ScratchFolder folder;
  std::vector<std::unique_ptr<Team>> teams;
  std::vector<Variant> variants;

  void start(const char* name, std::vector<std::string> command, const std::vector<const char*>& sides) {
    const TeamOptions options{.name = name, .folder = folder.path(), .num_ranks = 1, .command = std::move(command)};
    teams.push_back(std::make_unique<Team>(options));
    for (const char* side : sides) variants.push_back({side, teams.back().get(), side});
  }
};

void verify_sums_of_optimizers(const std::string& what, const std::vector<Variant>& variants) {
  std::string ours;
  for (const auto& variant : variants) {
    const auto sums = variant.team->ask("verify " + variant.command).front();
    if (variant.name == "ours") ours = sums;
    if (agree(sums, ours, variant.name == "python-fused" ? 1e-11 : 1e-5)) continue;
    throw std::runtime_error(fmt::format("{}: sums of parameters after three steps are {} of ours and {} of {}", what,
                                         ours, sums, variant.name));
  }
}

std::vector<Row> run_optimizer_case(const std::string& what, const OptimizerTeams& teams, int num_rounds) {
  for (const auto& variant : teams.variants) variant.team->ask(fmt::format("copy {} {}", variant.command, what));
  verify_sums_of_optimizers(what, teams.variants);
  const auto end = std::chrono::steady_clock::time_point::max();
  const auto times = take_turns(teams.variants,
                                {.num_warm = 1, .num_steps = 3, .num_rounds = num_rounds, .deadline = end, .end = end});
  for (const auto& team : teams.teams) team->ask("drop");
  std::vector<Row> rows;
  for (const auto& variant : teams.variants) {
    if (variant.name == "ours") continue;
    rows.push_back(compare_times(times.at("ours"), times.at(variant.name)));
    rows.back().case_name = what + "/resnet50-parameters";
    rows.back().rival_name = variant.name;
    rows.back().unit = "ms";
  }
  return rows;
}

}  // namespace

std::vector<Row> run_optimizer(const Settings& settings) {
  check_case(settings.only_case, {std::begin(kOptimizerCases), std::end(kOptimizerCases)});
  OptimizerTeams teams;
  teams.start("cpp", {settings.program, kOptimizerRank}, {"ours", "libtorch"});
  const auto python = find_python();
  const std::string script = std::string(kSourceDir) + "/benchmarks/optimizer/optimizer_rank.py";
  if (!python.empty()) teams.start("python", {python, script}, {"python-foreach", "python-fused"});
  std::vector<Row> rows;
  for (const std::string what : kOptimizerCases) {
    if (!settings.only_case.empty() && settings.only_case != what) continue;
    const auto of_case = run_optimizer_case(what, teams, settings.rounds(kOptimizerRounds, kQuickOptimizerRounds));
    rows.insert(rows.end(), of_case.begin(), of_case.end());
  }
  return rows;
}

}  // namespace cohort::bench
