// checkpoint: saving and loading, into the kernel's memory and to the disk, beside torch.save, torch.load and
// torch.distributed.checkpoint; and how long an asynchronous save blocks training, beside a synchronous one.
#include <fmt/core.h>

#include <chrono>
#include <map>
#include <optional>

#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turns.h"
#include "build_facts.h"
#include "cohort/base/file/file.h"

namespace cohort::bench {
namespace {

struct CheckpointQuestion {
  const char* name;
  int num_ranks;
  const char* rival;
};
// The rival of "async-fsync" is our own synchronous save: see add_stall().
constexpr CheckpointQuestion kCheckpointQuestions[] = {
    {"save", 1, "torch.save"},         {"save-fsync", 1, "torch.save"}, {"load", 1, "torch.load"},
    {"mapped", 1, "torch.load(mmap)"}, {"async-fsync", 1, "DCP"},       {"sharded-save", 2, "DCP"},
    {"sharded-save-fsync", 2, "DCP"},  {"sharded-load", 2, "DCP"}};
constexpr const char* kStall = "async-fsync";
constexpr const char* kWholeSave = "sharded-save-fsync";
constexpr int kCheckpointRounds = 7;
constexpr int kQuickCheckpointRounds = 2;
const std::vector<int> kCheckpointSizes = {512, 2048};
const std::vector<int> kQuickCheckpointSizes = {32};

// Our ranks and Python's, for one number of ranks.
class CheckpointTeams {
 public:
  CheckpointTeams(const CheckpointQuestion& what, int mebibytes, const Settings& settings) : what_(what) {
    const std::string python = find_python();
    const std::string script = std::string(kSourceDir) + "/benchmarks/checkpoint/checkpoint_rank.py";
    start("ours", {settings.program, kCheckpointRank});
    if (!python.empty()) start("python", {python, script});
    for (auto& [name, team] : teams_) add(name, what.name, mebibytes);
    // Synchronous saves to the disk, to compare with the stall of an asynchronous one.
    if (what.name == std::string(kStall)) add("ours", kWholeSave, mebibytes);
  }

  Times measure(int num_rounds) {
    const auto end = std::chrono::steady_clock::time_point::max();
    return take_turns(variants_,
                      {.num_warm = 0, .num_steps = 1, .num_rounds = num_rounds + 1, .deadline = end, .end = end});
  }

 private:
  void start(const std::string& name, std::vector<std::string> command) {
    command.push_back(std::to_string(what_.num_ranks));
    teams_.emplace(
        name,
        Team({.name = name, .folder = folder_.path(), .num_ranks = what_.num_ranks, .command = std::move(command)}));
  }

  void add(const std::string& side, const std::string& kind, int mebibytes) {
    Team& team = teams_.at(side);
    // One process makes the folder; no side uses another's.
    const std::string folder = folder_.path() + "/" + side + "-files";
    (void)base::make_directories(folder);
    team.ask(fmt::format("copy {} {} {} {}", kind, kind, mebibytes, folder));
    variants_.push_back({side + "/" + kind, &team, kind});
  }

  const CheckpointQuestion& what_;
  ScratchFolder folder_;
  std::map<std::string, Team> teams_;
  std::vector<Variant> variants_;
};

// Drops the first round, in which memory is allocated.
std::vector<double> warm(const Times& times, const std::string& name) {
  const auto found = times.find(name);
  return found == times.end() ? std::vector<double>()
                              : std::vector<double>(found->second.begin() + 1, found->second.end());
}

Row row_of(const Times& times, const CheckpointQuestion& what, int mebibytes) {
  const auto ours = warm(times, fmt::format("ours/{}", what.name));
  const auto rival = warm(times, fmt::format("python/{}", what.name));
  Row row;
  if (rival.empty()) {
    row.ours = median(ours);
    row.note = "there is no Python with PyTorch in .venv";
  } else {
    row = compare_times(ours, rival);
    row.note =
        fmt::format("{:.2f} GB/s beside {:.2f}", mebibytes * 1.048576 / *row.ours, mebibytes * 1.048576 / *row.rival);
  }
  row.case_name = fmt::format("{}/{}MiB/ranks={}", what.name, mebibytes, what.num_ranks);
  row.rival_name = what.rival;
  row.unit = "ms";
  return row;
}

// The stall of an asynchronous save, as a fraction of the time of a synchronous one.
Row stall_row(const Times& times, const CheckpointQuestion& what, int mebibytes) {
  Row row = compare_times(warm(times, fmt::format("ours/{}", kStall)), warm(times, fmt::format("ours/{}", kWholeSave)));
  row.case_name = fmt::format("{}/{}MiB/ranks={}", what.name, mebibytes, what.num_ranks);
  row.rival_name = "whole save";
  row.unit = "ms";
  row.note = fmt::format("training stands still for {:.2f} of a whole save", *row.ours / *row.rival);
  return row;
}

}  // namespace

std::vector<Row> run_checkpoint(const Settings& settings) {
  std::vector<std::string> names;
  for (const auto& what : kCheckpointQuestions) names.emplace_back(what.name);
  check_case(settings.only_case, names);
  std::vector<Row> rows;
  for (const int mebibytes : settings.is_quick ? kQuickCheckpointSizes : kCheckpointSizes) {
    for (const auto& what : kCheckpointQuestions) {
      if (!settings.only_case.empty() && settings.only_case != what.name) continue;
      const Times times = CheckpointTeams(what, mebibytes, settings)
                              .measure(settings.rounds(kCheckpointRounds, kQuickCheckpointRounds));
      rows.push_back(row_of(times, what, mebibytes));
      if (what.name == std::string(kStall)) rows.push_back(stall_row(times, what, mebibytes));
    }
  }
  return rows;
}

}  // namespace cohort::bench
