// fsdp-step: a training step of fully_shard with the AdamW of --optimizer, one thread per rank, and its parts, beside the same
// ranks without communication (the floor: each trains its own model), our DDP, and Python's FSDP2 on Gloo and on backend cohort.
// All sides use the same optimizer, and the allocator of --allocator; the default is the shared one, as users of fully_shard
// should use it. "gathered" is fully_shard of each layer without using shared memory, as in Python's FSDP2. Parameters after a
// step are compared before anything is timed. Then measures memory: PSS of all ranks after some steps, of one variant at a time;
// fully_shard's is also compared with a formula.
#include <fmt/core.h>

#include <chrono>
#include <map>
#include <stdexcept>

#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turns.h"
#include "build_facts.h"

namespace cohort::bench {
namespace {

struct FsdpCase {
  const char* name;
  int num_ranks;
  int num_steps;
  int num_rounds;
  int num_quick_rounds;
  bool has_python;
};
constexpr FsdpCase kFsdpCases[] = {
    {"mlp-4x1024", 2, 3, 30, 3, true}, {"mlp-4x1024", 4, 2, 20, 0, false}, {"gpt-25m", 2, 1, 20, 0, false},
    {"mlp-4x4096", 2, 1, 12, 0, true}, {"mlp-4x4096", 4, 1, 8, 0, false},  {"gpt-124m", 2, 1, 8, 0, false},
};
constexpr const char* kParts[] = {"step", "pass", "optimizer"};
constexpr const char* kOwnVariants[] = {"fsdp", "ddp", "floor"};
constexpr const char* kGathered = "gathered";

Team start_team(const Settings& settings, const std::string& folder, const FsdpCase& what, const std::string& backend) {
  std::vector<std::string> command{settings.program, kFsdpStepRank};
  std::string name = "cpp";
  if (!backend.empty()) {
    command = {find_python(), std::string(kSourceDir) + "/benchmarks/fsdp/fsdp_step_rank.py"};
    name = "python-" + backend;
  }
  command.push_back(std::to_string(what.num_ranks));
  command.push_back(backend.empty() ? settings.backend : backend);
  command.push_back(settings.optimizer);
  std::map<std::string, std::string> environment;
  if (settings.allocator == "default") environment["COHORT_SHARED_ALLOCATOR"] = "1";
  return Team({.name = fmt::format("{}-{}-{}", name, what.name, what.num_ranks),
               .folder = folder,
               .num_ranks = what.num_ranks,
               .command = command,
               .environment = environment});
}

void expect_equal(const std::string& a, const std::string& b, const std::string& what) {
  if (!agree(a, b, 1e-5))
    throw std::runtime_error(fmt::format("parameters after a step differ: {} and {} {}", a, b, what));
}

double sum_of(const std::vector<std::string>& answers) {
  double sum = 0;
  for (const auto& answer : answers) sum += std::stod(answer);
  return sum;
}

// Measures one variant at a time, as another one could reuse released memory.
std::map<std::string, double> measure_memory(Team& team, const FsdpCase& what) {
  std::map<std::string, double> memory;
  memory["empty"] = sum_of(team.ask("memory"));
  for (const char* variant : kOwnVariants) {
    team.ask(fmt::format("copy {} {}", variant, what.name));
    team.ask(fmt::format("run {}.step 0 3", variant));
    memory[variant] = sum_of(team.ask("memory"));
    if (std::string(variant) == "fsdp") memory["formula"] = memory["empty"] + sum_of(team.ask("formula fsdp"));
    team.ask("drop");
  }
  return memory;
}

Row memory_row(const FsdpCase& what, const std::map<std::string, double>& memory, const std::string& rival) {
  Row row;
  row.case_name = fmt::format("{}/ranks={}/memory-of-the-host", what.name, what.num_ranks);
  row.rival_name = rival;
  row.unit = "MiB";
  row.ours = memory.at("fsdp");
  row.rival = memory.at(rival);
  row.ratio = *row.rival / *row.ours;
  row.note = rival == "formula" ? "base, 4 times the parameters (they, gradients, AdamW), two chunks per rank"
                                : fmt::format("of it {:.0f} before there was a model", memory.at("empty"));
  return row;
}

// Adds rows for ours beside each of the others in `times`, whose steps were timed in the same turns.
void add_rows(std::vector<Row>& rows, const std::string& case_name, const std::string& ours,
              const std::vector<std::string>& rivals, const Times& times) {
  for (const auto& rival : rivals) {
    Row row = compare_times(times.at(ours), times.at(rival));
    row.case_name = case_name;
    row.rival_name = rival;
    row.unit = "ms";
    rows.push_back(row);
  }
}

std::vector<Row> run_fsdp_case(const Settings& settings, const std::string& folder, const FsdpCase& what) {
  std::map<std::string, Team> teams;
  teams.emplace("", start_team(settings, folder, what, ""));
  auto& own = teams.at("");
  const auto memory = measure_memory(own, what);
  for (const char* variant : kOwnVariants) own.ask(fmt::format("copy {} {}", variant, what.name));
  const auto expected = own.ask("verify fsdp");
  for (const auto& answer : expected) expect_equal(answer, expected[0], "on two ranks of fully_shard");
  expect_equal(expected[0], own.ask("verify ddp")[0], "with fully_shard and DDP");
  own.ask("verify floor");
  const bool has_gathered = what.has_python;
  if (has_gathered) {
    own.ask(fmt::format("copy {} {}", kGathered, what.name));
    expect_equal(expected[0], own.ask(fmt::format("verify {}", kGathered))[0], "with one memory and gathered");
  }
  if (what.has_python && !find_python().empty()) {
    for (const char* backend : {"gloo", "cohort"}) {
      auto& team = teams.emplace(backend, start_team(settings, folder, what, backend)).first->second;
      for (const char* part : kParts) team.ask(fmt::format("copy fsdp2.{} {}", part, what.name));
      expect_equal(expected[0], team.ask("verify fsdp2.step")[0], "with fully_shard and Python's FSDP2");
    }
  }
  std::vector<Row> rows;
  const auto end = std::chrono::steady_clock::time_point::max();
  for (const std::string part : kParts) {
    std::vector<Variant> variants;
    for (const char* variant : kOwnVariants) variants.push_back({variant, &own, fmt::format("{}.{}", variant, part)});
    if (has_gathered) variants.push_back({kGathered, &own, fmt::format("{}.{}", kGathered, part)});
    for (auto& [backend, team] : teams) {
      if (!backend.empty()) variants.push_back({"python-fsdp2-" + backend, &team, "fsdp2." + part});
    }
    const auto times = take_turns(variants, {.num_warm = 1,
                                             .num_steps = what.num_steps,
                                             .num_rounds = settings.is_quick ? what.num_quick_rounds : what.num_rounds,
                                             .deadline = end,
                                             .end = end});
    const auto case_name = fmt::format("{}/ranks={}/{}", what.name, what.num_ranks, part);
    std::vector<std::string> rivals{"ddp", "floor"};
    for (const auto& variant : variants) {
      if (variant.name.starts_with("python")) rivals.push_back(variant.name);
    }
    add_rows(rows, case_name, "fsdp", rivals, times);
    if (has_gathered) add_rows(rows, case_name + "/gathered", kGathered, rivals, times);
  }
  for (const char* rival : {"ddp", "floor", "formula"}) rows.push_back(memory_row(what, memory, rival));
  return rows;
}

}  // namespace

std::vector<Row> run_fsdp_step(const Settings& settings) {
  std::vector<std::string> names;
  for (const auto& what : kFsdpCases) names.emplace_back(what.name);
  check_case(settings.only_case, names);
  const ScratchFolder folder;
  std::vector<Row> rows;
  for (const auto& what : kFsdpCases) {
    if (settings.is_quick && what.num_quick_rounds == 0) continue;
    if (!settings.only_case.empty() && settings.only_case != what.name) continue;
    for (auto& row : run_fsdp_case(settings, folder.path(), what)) {
      if (settings.optimizer != "libtorch") row.case_name += "/" + settings.optimizer;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace cohort::bench
