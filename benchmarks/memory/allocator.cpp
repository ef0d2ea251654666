// allocator: a training step of one process, without communication, on our allocator and on others. Every side is a separate
// process; they take blocks of steps in turn.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turns.h"
#include "cohort/base/system/env.h"
#include "cohort/elastic/plan/worker_allocator.h"

namespace cohort::bench {
namespace {

struct AllocatorCase {
  const char* name;
  int num_steps;
  int num_rounds;
  bool is_quick;
};
constexpr AllocatorCase kAllocatorCases[] = {
    {"mlp-4x1024", 4, 40, true}, {"mlp-4x4096", 1, 15, false}, {"gpt-14m", 1, 20, true}, {"resnet18", 1, 20, false}};
constexpr int kQuickRounds = 8;

struct Side {
  std::string name;
  std::map<std::string, std::string> environment;
  /// Why it is not measured. If empty, it is.
  std::string absent = {};
};

std::vector<Side> all_sides() {
  std::vector<Side> sides = {
      {"ours", {{"COHORT_SHARED_ALLOCATOR", "1"}}},
      {"glibc", {{"COHORT_SHARED_ALLOCATOR", "0"}}},
      // Keeps freed memory, as our allocator does: no separate mapping for large blocks, and nothing returned to the system.
      {"glibc-keeping",
       {{"COHORT_SHARED_ALLOCATOR", "0"},
        {"MALLOC_MMAP_MAX_", "0"},
        {"MALLOC_TRIM_THRESHOLD_", "100000000000"},
        {"MALLOC_TOP_PAD_", "67108864"}}},
  };
  const auto environment = base::environment();
  for (const char* name : {"tcmalloc", "jemalloc"}) {
    const auto variables = elastic::allocator_variables(name, environment, elastic::library_folders(environment));
    sides.push_back({name, variables ? *variables : std::map<std::string, std::string>{},
                     variables ? "" : variables.error().message()});
  }
  return sides;
}

Row plain_row(const std::string& case_name, const Side& rival, const char* unit, double ours, double theirs) {
  Row row;
  row.case_name = case_name;
  row.rival_name = rival.name;
  row.unit = unit;
  row.ours = ours;
  row.rival = theirs;
  if (ours > 0) row.ratio = theirs / ours;
  return row;
}

Row absent_row(const std::string& case_name, const Side& side) {
  Row row;
  row.case_name = case_name;
  row.rival_name = side.name;
  row.note = side.absent;
  return row;
}

// One process per side.
class Sides {
 public:
  Sides(const std::string& folder, const Settings& settings) : sides_(all_sides()) {
    for (const Side& side : sides_) {
      if (!side.absent.empty()) continue;
      teams_.emplace(side.name, Team({.name = side.name,
                                      .folder = folder,
                                      .num_ranks = 1,
                                      .command = {settings.program, kAllocatorRank},
                                      .environment = side.environment}));
    }
  }

  const std::vector<Side>& all() const { return sides_; }
  Team& team(const std::string& name) { return teams_.at(name); }
  std::vector<Variant> variants() {
    std::vector<Variant> all;
    for (auto& [name, team] : teams_) all.push_back({name, &team, "ours"});
    return all;
  }
  void tell(const std::string& command) {
    for (auto& [name, team] : teams_) team.ask(command);
  }

 private:
  std::vector<Side> sides_;
  std::map<std::string, Team> teams_;
};

void add_step_rows(const AllocatorCase& what, const Settings& settings, std::vector<Row>& rows) {
  const ScratchFolder folder;  // new processes, so that the memory is only this case's
  Sides sides(folder.path(), settings);
  sides.tell(fmt::format("copy {}", what.name));
  sides.tell("run ours 3 1");
  const auto end = std::chrono::steady_clock::time_point::max();
  const auto times = take_turns(sides.variants(), {.num_warm = 1,
                                                   .num_steps = what.num_steps,
                                                   .num_rounds = settings.is_quick ? kQuickRounds : what.num_rounds,
                                                   .deadline = end,
                                                   .end = end});
  const auto number = [&](const std::string& side, const char* command) {
    return sides.team(side).ask_number(command);
  };
  for (const Side& side : sides.all()) {
    if (side.name == "ours") continue;
    if (!side.absent.empty()) {
      rows.push_back(absent_row(what.name, side));
      continue;
    }
    Row row = compare_times(times.at("ours"), times.at(side.name));
    row.case_name = what.name;
    row.rival_name = side.name;
    row.unit = "ms";
    rows.push_back(row);
    const auto name = std::string(what.name);
    rows.push_back(plain_row(name + "/faults", side, "1", number("ours", "faults"), number(side.name, "faults")));
    rows.push_back(plain_row(name + "/memory", side, "MiB", number("ours", "memory"), number(side.name, "memory")));
  }
}

void add_mixed_rows(const Settings& settings, std::vector<Row>& rows) {
  const ScratchFolder folder;
  Sides sides(folder.path(), settings);
  const double ours = sides.team("ours").ask_number("mixed");
  for (const Side& side : sides.all()) {
    if (side.name == "ours" || !side.absent.empty()) continue;
    rows.push_back(
        plain_row("mixed-sizes/memory-over-live", side, "1", ours, sides.team(side.name).ask_number("mixed")));
  }
}

}  // namespace

std::vector<Row> run_allocator(const Settings& settings) {
  std::vector<std::string> names;
  for (const AllocatorCase& what : kAllocatorCases) names.emplace_back(what.name);
  check_case(settings.only_case, names);
  std::vector<Row> rows;
  for (const AllocatorCase& what : kAllocatorCases) {
    if (!settings.only_case.empty() && settings.only_case != what.name) continue;
    if (settings.only_case.empty() && settings.is_quick && !what.is_quick) continue;
    add_step_rows(what, settings, rows);
  }
  if (settings.only_case.empty()) add_mixed_rows(settings, rows);
  return rows;
}

}  // namespace cohort::bench
