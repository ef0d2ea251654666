// python: training steps of unmodified PyTorch programs on 2 ranks, one thread each, on backend "cohort", beside Gloo and beside
// PyTorch's backend "fake", which communicates nothing: the floor.
//
// One team per backend runs the same program, python_step_rank.py. In each round every team takes a block of steps, in changing
// order, while the others sleep; a pair is one round. Time of a block: that of the slower rank; the ranks of "fake" work at the
// same time too, so that they share the memory's bandwidth as the others do. Before anything is timed, losses and gradients of
// cohort and Gloo are compared.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>

#include "benchmarks/question.h"
#include "benchmarks/team.h"
#include "benchmarks/turns.h"
#include "build_facts.h"
#include "cohort/base/env.h"

namespace cohort::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

struct Case {
  const char* name;
  int num_warm;
  int num_steps;
  int num_rounds;
  /// No rounds: not in the quick form.
  int num_quick_steps;
  int num_quick_rounds;
  seconds quick_limit;
};

constexpr Case kCases[] = {
    {"ddp/linear", 5, 100, 60, 30, 30, seconds(4)},
    {"ddp/mlp-4x1024", 1, 4, 60, 2, 20, seconds(6)},
    {"ddp/mlp-4x4096", 0, 1, 30, 0, 0, seconds(0)},
    {"fsdp/block-1024/tokens=64", 0, 2, 40, 1, 10, seconds(8)},
    {"fsdp/block-1024/tokens=512", 0, 1, 30, 0, 0, seconds(0)},
    {"tp/block-1024/tokens=64", 0, 4, 60, 1, 15, seconds(6)},
    {"tp/block-1024/tokens=512", 0, 1, 60, 0, 0, seconds(0)},
};
constexpr auto kQuickLimit = seconds(38);

constexpr const char* kOurs = "cohort";
constexpr const char* kFloor = "fake";
constexpr const char* kRival = "gloo";

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

// By backend, and why one is missing.
struct Teams {
  ScratchFolder folder;
  std::vector<std::unique_ptr<Team>> teams;
  std::vector<Variant> variants;
  std::string why_absent;

  void start(const std::string& backend, const std::string& python, const std::string& packages) {
    auto path = base::get_env("PYTHONPATH").value_or("");
    path = path.empty() ? packages : packages + ":" + path;
    const std::string program = std::string(kSourceDir) + "/benchmarks/python_step_rank.py";
    teams.push_back(std::make_unique<Team>(TeamOptions{.name = backend,
                                                       .folder = folder.path(),
                                                       .command = {python, program, backend},
                                                       .environment = {{"PYTHONPATH", path}}}));
    variants.push_back({backend, teams.back().get(), "model"});
  }
};

void start_teams(Teams& teams, const Settings& settings) {
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

void verify(const std::string& case_name, const std::vector<Variant>& variants) {
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

Times run_case(const Case& what, const Teams& teams, bool is_quick, Clock::time_point end) {
  const auto& variants = teams.variants;
  for (const Variant& variant : variants) variant.team->ask(fmt::format("copy {} {}", variant.command, what.name));
  verify(what.name, variants);
  auto times = take_turns(variants, {.num_warm = is_quick ? std::min(what.num_warm, 1) : what.num_warm,
                                     .num_steps = is_quick ? what.num_quick_steps : what.num_steps,
                                     .num_rounds = is_quick ? what.num_quick_rounds : what.num_rounds,
                                     .deadline = is_quick ? Clock::now() + what.quick_limit : end,
                                     .end = end});
  for (const Variant& variant : variants) variant.team->ask("drop");
  return times;
}

// Where what ours adds cannot be told from noise there is no ratio, but a most.
Row added_row(const Times& times) {
  const auto& floor = times.at(kFloor);
  const auto& ours = times.at(kOurs);
  const auto& rival = times.at(kRival);
  Row row = compare_added_times({.ours = ours, .ours_plain = floor, .rival = rival, .rival_plain = floor});
  if (row.ratio) return row;
  std::vector<double> our_added, their_added;
  for (size_t i = 0; i < floor.size(); ++i) {
    our_added.push_back(ours[i] - floor[i]);
    their_added.push_back(rival[i] - floor[i]);
  }
  const double least = median_bounds(their_added).low;
  const double most = median_bounds(our_added).high;
  row.note = least <= 0
                 ? "noise hides what gloo adds"
                 : fmt::format("noise hides what cohort adds: at most {:.3f} ms, {:.2f} of what gloo adds at least",
                               most, most / least);
  return row;
}

std::vector<Row> rows_of(const std::string& name, const Times& times, const std::string& why_absent) {
  std::vector<Row> rows(3);
  rows[0].rival_name = kFloor;
  rows[1].rival_name = rows[2].rival_name = kRival;
  const auto compare = [&](Row& row, const Row& figures) {
    const auto rival_name = row.rival_name;
    row = figures;
    row.rival_name = rival_name;
  };
  if (times.contains(kOurs)) {
    compare(rows[0], compare_times(times.at(kOurs), times.at(kFloor)));
    compare(rows[1], compare_times(times.at(kOurs), times.at(kRival)));
    compare(rows[2], added_row(times));
  } else if (times.contains(kFloor)) {
    rows[0].rival = median(times.at(kFloor));
    rows[1].rival = median(times.at(kRival));
    rows[2].rival = compare_added_times({.ours = times.at(kRival),
                                         .ours_plain = times.at(kFloor),
                                         .rival = times.at(kRival),
                                         .rival_plain = times.at(kFloor)})
                        .rival;
  }
  for (Row& row : rows) {
    row.case_name = name + "/ranks=2";
    row.unit = "ms";
    if (!row.ours) row.note = why_absent;
  }
  rows[2].case_name += "/added";
  return rows;
}

std::string milliseconds(const std::optional<double>& value) { return value ? fmt::format("{:.3f}", *value) : "-"; }

// "1.21 [1.18, 1.25]": how many times the rival's figure ours is.
std::string share_text(const Row& row) {
  if (!row.ratio) return row.note.empty() ? "-" : row.note;
  std::string text = fmt::format("{:.2f}", 1 / *row.ratio);
  if (row.bounds) text += fmt::format(" [{:.2f}, {:.2f}]", 1 / row.bounds->high, 1 / row.bounds->low);
  return text;
}

}  // namespace

std::vector<Row> run_python(const Settings& settings) {
  const auto end = settings.is_quick ? Clock::now() + kQuickLimit : Clock::time_point::max();
  Teams teams;
  start_teams(teams, settings);
  std::vector<Row> rows;
  for (const Case& what : kCases) {
    if (!settings.only_case.empty() && settings.only_case != what.name) continue;
    if (settings.is_quick && what.num_quick_rounds == 0) continue;
    const bool is_late = Clock::now() > end;
    const auto times = teams.variants.empty() || is_late ? Times() : run_case(what, teams, settings.is_quick, end);
    const auto why_absent = is_late ? "no time left" : teams.why_absent;
    for (Row& row : rows_of(what.name, times, why_absent)) rows.push_back(std::move(row));
  }
  if (settings.is_quick)
    fmt::print("quick: short blocks, fewer cases, 10 to 30 pairs each or what the machine allows\n");
  return rows;
}

void print_python(const std::vector<Row>& rows) {
  constexpr auto kLine = "  {:<32}  {:>10}  {:>10}  {:>10}  {:<19}  {:>10}  {:>10}  {:<19}  {}\n";
  fmt::print("  milliseconds per step; added: above the floor, fake\n");
  fmt::print(kLine, "case", kFloor, kOurs, kRival, "cohort / fake", "cohort", "gloo", "cohort / gloo", "");
  fmt::print(kLine, "", "", "", "", "", "added", "added", "added", "pairs");
  for (size_t i = 0; i + 2 < rows.size(); i += 3) {
    const Row& floor = rows[i];
    const Row& rival = rows[i + 1];
    const Row& added = rows[i + 2];
    const auto pairs = added.num_pairs > 0 ? std::to_string(added.num_pairs) : "";
    fmt::print(kLine, floor.case_name, milliseconds(floor.rival), milliseconds(floor.ours), milliseconds(rival.rival),
               share_text(floor), milliseconds(added.ours), milliseconds(added.rival), share_text(added), pairs);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

}  // namespace cohort::bench
