// dataloader: the rate of a DataLoader's batches without any work on them, beside Python's, and beside the unavoidable work:
// copying the images (cifar), or decoding and resizing them (jpeg). Also the memory of each, including workers.
//
// Every side with its number of workers is a separate process. A block is a whole epoch, so that no side reads ahead while
// another one is measured.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "benchmarks/dataloader/loader_case.h"
#include "benchmarks/dataloader/photos.h"
#include "benchmarks/support/process_tree.h"
#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turns.h"
#include "build_facts.h"
#include "cohort/base/text/text.h"

namespace cohort::bench {
namespace {

struct LoaderQuestion {
  const char* name;
  const char* floor;
  int64_t batch_size;
  int64_t num_images;
  int64_t num_quick_images;
  /// Whether the images are in a folder.
  bool has_folder;
};
constexpr LoaderQuestion kLoaderQuestions[] = {{"cifar", "cifar-floor", 128, 50'000, 6'400, false},
                                               {"cifar-plain", "cifar-floor", 128, 50'000, 6'400, false},
                                               {"jpeg", "jpeg-floor", 64, 320, 128, true}};
constexpr int kLoaderRounds = 12;
constexpr int kQuickLoaderRounds = 6;
constexpr double kMeanTolerance = 0.1;  // each side draws its own crops

struct LoaderSide {
  std::string name;
  bool is_ours;
  int num_workers;
};
const std::vector<LoaderSide> kLoaderSides = {
    {"ours-0", true, 0}, {"ours-1", true, 1}, {"ours-2", true, 2}, {"python-0", false, 0}, {"python-2", false, 2}};
constexpr const char* kFloor = "floor";

// The processes of a case.
class LoaderTeams {
 public:
  LoaderTeams(const LoaderQuestion& what, const Settings& settings) : python_(find_python()) {
    const int64_t num_images = settings.is_quick ? what.num_quick_images : what.num_images;
    const std::string photos = what.has_folder ? folder_.path() + "/photos" : "-";
    if (what.has_folder) write_photos(photos, static_cast<int>(num_images));
    for (const LoaderSide& side : kLoaderSides) {
      if (!side.is_ours && python_.empty()) continue;
      start(side.name, side.is_ours, settings);
      team(side.name).ask(
          fmt::format("copy all {} {} {} {} {}", what.name, side.num_workers, what.batch_size, num_images, photos));
    }
    start(kFloor, true, settings);
    team(kFloor).ask(fmt::format("copy all {} 0 {} {} {}", what.floor, what.batch_size, num_images, photos));
  }

  bool has(const std::string& name) const { return teams_.contains(name); }
  Team& team(const std::string& name) { return teams_.at(name); }
  std::vector<Variant> variants() {
    std::vector<Variant> all;
    for (auto& [name, team] : teams_) all.push_back({name, &team, "all"});
    return all;
  }

  // The images and the labels' sum of an epoch must be the same on all sides, and the pixels' mean close to the first side's.
  void verify() {
    const auto expected = team(kLoaderSides.front().name).ask("verify all").front();
    for (const LoaderSide& side : kLoaderSides) {
      if (!has(side.name)) continue;
      const auto actual = team(side.name).ask("verify all").front();
      const auto counts = [](const std::string& answer) { return answer.substr(0, answer.rfind(' ')); };
      if (counts(actual) == counts(expected) && agree(actual, expected, kMeanTolerance)) continue;
      throw std::runtime_error(fmt::format("images, labels and mean of an epoch are {} for {}, and {} for {}", actual,
                                           side.name, expected, kLoaderSides.front().name));
    }
  }

  double memory(const std::string& name) {
    const auto pid = base::parse_int(team(name).ask("hold all").front()).value_or(0);
    const double memory = tree_memory(static_cast<pid_t>(pid));
    team(name).ask("finish all");
    return memory;
  }

 private:
  void start(const std::string& name, bool is_ours, const Settings& settings) {
    const std::string script = std::string(kSourceDir) + "/benchmarks/dataloader/dataloader_rank.py";
    teams_.emplace(name, Team({.name = name,
                               .folder = folder_.path(),
                               .num_ranks = 1,
                               .command = is_ours ? std::vector<std::string>{settings.program, kDataloaderRank}
                                                  : std::vector<std::string>{python_, script}}));
  }

  ScratchFolder folder_;
  std::string python_;
  std::map<std::string, Team> teams_;
};

class LoaderRows {
 public:
  LoaderRows(const LoaderQuestion& what, LoaderTeams& teams, Times times)
      : name_(what.name), teams_(teams), times_(std::move(times)) {}

  std::vector<Row> all() {
    for (const LoaderSide& side : kLoaderSides) {
      if (!side.is_ours) continue;
      const std::string workers = fmt::format("/workers={}", side.num_workers);
      add_times(workers, side.name, fmt::format("python-{}", side.num_workers == 0 ? 0 : 2));
      add_times(workers, side.name, kFloor);
    }
    const auto ours = fastest(true), python = fastest(false);
    if (ours && python) add_times("/best", *ours, *python);
    add_memory();
    return std::move(rows_);
  }

 private:
  std::optional<std::string> fastest(bool is_ours) const {
    std::optional<std::string> best;
    for (const LoaderSide& side : kLoaderSides) {
      if (side.is_ours != is_ours || !teams_.has(side.name)) continue;
      if (!best || median(times_.at(side.name)) < median(times_.at(*best))) best = side.name;
    }
    return best;
  }

  void add_times(const std::string& what, const std::string& ours, const std::string& rival) {
    Row row;
    if (teams_.has(rival)) {
      row = compare_times(times_.at(ours), times_.at(rival));
      row.note = fmt::format("{}: {:.0f} images/s beside {:.0f}", ours, 1e6 / *row.ours, 1e6 / *row.rival);
    } else {
      row.ours = median(times_.at(ours));
      row.note = "there is no Python with PyTorch in .venv";
    }
    add(std::move(row), what, rival, "us/image");
  }

  void add_memory() {
    std::map<std::string, double> memory;
    for (const LoaderSide& side : kLoaderSides) {
      if (teams_.has(side.name)) memory[side.name] = teams_.memory(side.name);
    }
    const auto add_row = [&](const std::string& what, double ours, double rival) {
      Row row;
      row.ours = ours;
      row.rival = rival;
      if (ours > 0) row.ratio = rival / ours;
      add(std::move(row), "/memory" + what, "python", "MiB");
    };
    if (!memory.contains("python-2")) return;
    add_row("/workers=0", memory.at("ours-0"), memory.at("python-0"));
    add_row("/workers=2", memory.at("ours-2"), memory.at("python-2"));
    add_row("/per-worker", (memory.at("ours-2") - memory.at("ours-0")) / 2,
            (memory.at("python-2") - memory.at("python-0")) / 2);
  }

  void add(Row row, const std::string& what, const std::string& rival, const std::string& unit) {
    row.case_name = name_ + what;
    row.rival_name = rival;
    row.unit = unit;
    rows_.push_back(std::move(row));
  }

  std::string name_;
  LoaderTeams& teams_;
  Times times_;
  std::vector<Row> rows_;
};

}  // namespace

std::vector<Row> run_dataloader(const Settings& settings) {
  std::vector<std::string> names;
  for (const auto& what : kLoaderQuestions) names.emplace_back(what.name);
  check_case(settings.only_case, names);
  std::vector<Row> rows;
  for (const auto& what : kLoaderQuestions) {
    if (!settings.only_case.empty() && settings.only_case != what.name) continue;
    LoaderTeams teams(what, settings);
    teams.verify();
    const auto end = std::chrono::steady_clock::time_point::max();
    auto times = take_turns(teams.variants(), {.num_warm = 0,
                                               .num_steps = 1,
                                               .num_rounds = settings.rounds(kLoaderRounds, kQuickLoaderRounds),
                                               .deadline = end,
                                               .end = end});
    for (Row& row : LoaderRows(what, teams, std::move(times)).all()) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace cohort::bench
