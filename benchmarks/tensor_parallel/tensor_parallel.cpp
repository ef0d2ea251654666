// tensor-parallel: a training step of a transformer block of width 1024 that two ranks, one thread each, compute together with
// parallelize_module, beside Python's parallelize_module on backend cohort and on Gloo, and beside one process with one thread
// and the whole block. Floors are ranks that do the same work without communication: in Python with backend fake, in C++ with a
// plain block of half the heads and half the width. "added" is the time above the floor of the same language. Losses and
// gradients of all but the floors are compared before anything is timed.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <stdexcept>

#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turns.h"
#include "build_facts.h"
#include "cohort/base/system/env.h"

namespace cohort::bench {
namespace {

struct TensorParallelCase {
  const char* name;
  int num_steps;
  int num_rounds;
  /// 0 means that the quick form has no time for it.
  int num_quick_rounds;
};
constexpr TensorParallelCase kTensorParallelCases[] = {
    {"block-1024/tokens=64", 4, 60, 8}, {"block-1024/tokens=512", 1, 40, 0}, {"block-2048/tokens=64", 1, 30, 0}};

constexpr const char* kTogether = "tp";
constexpr const char* kHalf = "floor";
constexpr const char* kAlone = "one-process";
constexpr const char* kPythons[] = {"cohort", "gloo", "fake"};

class TensorParallelTeams {
 public:
  explicit TensorParallelTeams(const Settings& settings) {
    const auto own = [&](int num_ranks) {
      return std::vector<std::string>{settings.program, kTensorParallelRank, std::to_string(num_ranks),
                                      settings.backend};
    };
    start("together", 2, own(2), {});
    start(kAlone, 1, own(1), {});
    variants = {{kTogether, &teams_.at("together"), kTogether},
                {kHalf, &teams_.at("together"), kHalf},
                {kAlone, &teams_.at(kAlone), kAlone}};
    const auto python = find_python();
    if (python.empty()) return;
    auto path = base::get_env("PYTHONPATH").value_or("");
    const auto packages = settings.program_folder + "/../python";
    path = path.empty() ? packages : packages + ":" + path;
    for (const std::string backend : kPythons) {
      start(backend, 2, {python, std::string(kSourceDir) + "/benchmarks/python/python_step_rank.py", backend},
            {{"PYTHONPATH", path}});
      variants.push_back({"python-" + backend, &teams_.at(backend), "python"});
    }
  }

  std::vector<Variant> variants;

 private:
  void start(const std::string& name, int num_ranks, const std::vector<std::string>& command,
             const std::map<std::string, std::string>& environment) {
    teams_.emplace(name, Team({.name = name,
                               .folder = folder_.path(),
                               .num_ranks = num_ranks,
                               .command = command,
                               .environment = environment}));
  }

  ScratchFolder folder_;
  std::map<std::string, Team> teams_;
};

bool is_floor(const std::string& name) { return name == kHalf || name == "python-fake"; }

// The first number is the loss, which one process has as well; the others are sums over a rank's shard of the gradients.
void verify_together(const std::vector<Variant>& variants) {
  std::map<std::string, std::vector<std::string>> answers;
  for (const auto& variant : variants) answers[variant.name] = variant.team->ask("verify " + variant.command);
  const auto& ours = answers.at(kTogether);
  for (const auto& [name, sums] : answers) {
    if (is_floor(name)) continue;
    for (size_t rank = 0; rank < sums.size(); ++rank) {
      const bool is_whole = name == kAlone;
      const auto loss_of = [](const std::string& text) { return text.substr(0, text.find(' ')); };
      const auto a = is_whole ? loss_of(ours[rank]) : ours[rank], b = is_whole ? loss_of(sums[rank]) : sums[rank];
      if (agree(a, b, 1e-4)) continue;
      throw std::runtime_error(
          fmt::format("loss and gradients of rank {} are {} with parallelize_module and {} with {}", rank, a, b, name));
    }
  }
}

std::vector<Row> tensor_parallel_rows(const std::string& name, const Times& times) {
  std::vector<Row> rows;
  const auto add = [&](Row row, const std::string& suffix, const std::string& rival) {
    row.case_name = name + suffix;
    row.rival_name = rival;
    row.unit = "ms";
    rows.push_back(std::move(row));
  };
  for (const auto& [rival, series] : times) {
    if (rival != kTogether) add(compare_times(times.at(kTogether), series), "", rival);
  }
  for (const std::string rival : {"python-cohort", "python-gloo"}) {
    if (!times.contains(rival)) continue;
    add(compare_added_times({.ours = times.at(kTogether),
                             .ours_plain = times.at(kHalf),
                             .rival = times.at(rival),
                             .rival_plain = times.at("python-fake")}),
        "/added", rival);
  }
  return rows;
}

}  // namespace

std::vector<Row> run_tensor_parallel(const Settings& settings) {
  std::vector<std::string> names;
  for (const auto& what : kTensorParallelCases) names.emplace_back(what.name);
  check_case(settings.only_case, names);
  TensorParallelTeams teams(settings);
  std::vector<Row> rows;
  const auto end = std::chrono::steady_clock::time_point::max();
  for (const auto& what : kTensorParallelCases) {
    if (settings.is_quick && settings.only_case.empty() && what.num_quick_rounds == 0) continue;
    if (!settings.only_case.empty() && settings.only_case != what.name) continue;
    for (const auto& variant : teams.variants)
      variant.team->ask(fmt::format("copy {} tp/{}", variant.command, what.name));
    verify_together(teams.variants);
    const int num_rounds = settings.is_quick ? std::max(what.num_quick_rounds, 3) : what.num_rounds;
    const auto times =
        take_turns(teams.variants, {.num_warm = 1,
                                    .num_steps = what.num_steps,
                                    .num_rounds = settings.num_rounds > 0 ? settings.num_rounds : num_rounds,
                                    .deadline = end,
                                    .end = end});
    for (const auto& variant : teams.variants) variant.team->ask("drop");
    for (auto& row : tensor_parallel_rows(what.name, times)) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace cohort::bench
