// train: whole training programs on 2 ranks, one thread each: ResNet-18 on images of 32x32 (a synthetic CIFAR-10) and a GPT of 25
// M parameters on bytes, in C++ (DistributedDataParallel, DataLoader, fused optimizer; in a hand-written loop and with the
// Trainer), beside Python's (DDP on Gloo, DataLoader, torch.optim with its defaults, and with fused=True). Weights, order of
// data, batches and optimizers are the same, without augmentation: losses of the first steps and sums of the parameters after
// them are compared before anything is timed. Both have loaders with and without a worker; the table shows the faster one of
// each.
//
// In each round every side takes a block of steps while the others sleep. Workers' queues are full when a block begins and when
// it ends, so each step includes the time of one batch.
//
// The time outside of kernels is the time of a step above its side's floor: forward and backward of the same model without DDP,
// on a batch in memory, on both ranks at once. It consists of waiting for data, communication (DDP's addition to forward and
// backward, including waiting for the other rank), the optimizer's step and everything else in the loop. A step of a floor counts
// with the slower rank's time, as a training step ends when both ranks have finished; training's own figures are means over the
// ranks, which end together. "one-floor" compares both sides with the C++ floor. Both use the kernels of one libtorch_cpu.so, so
// the time that Python's forward and backward take beyond it is its host's time.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>

#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turn_order.h"
#include "benchmarks/support/turns.h"
#include "benchmarks/support/value_or_throw.h"
#include "benchmarks/train/train_rows.h"
#include "build_facts.h"
#include "cohort/base/file/file.h"
#include "cohort/extras/files/synthetic/synthetic_dataset.h"

namespace cohort::bench {
namespace {

const TrainCase kTrainCases[] = {{.name = "resnet18", .batch_size = 8, .units_per_sample = 1, .unit = "images/s"},
                                 {.name = "gpt-25m", .batch_size = 2, .units_per_sample = 128, .unit = "tokens/s"}};
constexpr int kTrainRanks = 2;
constexpr int kTrainSteps = 4;       // per block, after one that is not timed
constexpr int kQuickTrainSteps = 1;  // without untimed steps
constexpr int kTrainRounds = 16;
constexpr int kQuickTrainRounds = 2;
constexpr double kTrainTolerance = 1e-4;

// The training data of all sides.
class TrainData {
 public:
  TrainData() {
    value_or_throw(files::make_synthetic_dataset("cifar10", folder_.path()));
    write_tokens();
  }
  std::string of(const TrainCase& what) const { return what.name == "resnet18" ? folder_.path() : tokens_path(); }
  const std::string& folder() const { return folder_.path(); }

 private:
  std::string tokens_path() const { return folder_.path() + "/tokens.bin"; }

  // Writes the guide's text as nanoGPT's files of tokens: two bytes each, little-endian.
  void write_tokens() const {
    std::vector<std::string> pages;
    for (const auto& page : std::filesystem::directory_iterator(std::string(kSourceDir) + "/docs/guide"))
      pages.push_back(page.path().string());
    std::sort(pages.begin(), pages.end());
    std::string tokens;
    for (const auto& page : pages) {
      for (const char byte : value_or_throw(base::read_file(page))) tokens.append({byte, '\0'});
    }
    const auto file = value_or_throw(base::open_for_writing(tokens_path()));
    value_or_throw(base::write_all(file.get(), tokens));
  }

  ScratchFolder folder_;
};

// Separate processes, as a program has them: the state of a heap after other sides changes the time of operators.
struct TrainSide {
  std::string name;
  std::string trainee;
  int num_workers;
  std::unique_ptr<Team> team;
};

std::vector<TrainSide> start_train_sides(const TrainCase& what, const Settings& settings, const std::string& folder) {
  const std::vector<std::string> loop{settings.program, kTrainRank, settings.backend};
  const std::vector<std::string> trainer{settings.program, kTrainerRank, settings.backend};
  const std::vector<std::string> python{find_python(), std::string(kSourceDir) + "/benchmarks/train/train_rank.py"};
  std::vector<TrainSide> sides;
  const auto start = [&](const std::string& name, const std::string& trainee, int num_workers,
                         const std::vector<std::string>& command, std::map<std::string, std::string> environment = {}) {
    const TeamOptions options{.name = what.name + "-" + name,
                              .folder = folder,
                              .num_ranks = kTrainRanks,
                              .command = command,
                              .environment = std::move(environment)};
    sides.push_back({name, trainee, num_workers, std::make_unique<Team>(options)});
  };
  start("ours-0", "loop", 0, loop);
  start("ours-floor", "floor", 0, loop);
  start("trainer-0", "trainer", 0, trainer);
  if (!settings.is_quick) {
    start("ours-1", "loop", 1, loop);
    start("ours-shared-0", "loop", 0, loop, {{"COHORT_SHARED_ALLOCATOR", "1"}});
  }
  if (python.front().empty()) return sides;
  start("python-0", "loop", 0, python);
  start("python-floor", "floor", 0, python);
  if (settings.is_quick) return sides;
  start("python-1", "loop", 1, python);
  start("python-fused-0", "fused", 0, python);
  return sides;
}

bool is_train_floor(const TrainSide& side) { return side.trainee == "floor"; }

// Compares losses and sums of each rank, which sides of a kind must have in common.
void verify_training(const TrainCase& what, const std::vector<TrainSide>& sides) {
  std::vector<std::string> of_loops, of_floors;
  for (const auto& side : sides) {
    const auto answers = side.team->ask("verify " + side.trainee);
    auto& expected = is_train_floor(side) ? of_floors : of_loops;
    if (expected.empty()) expected = answers;
    for (size_t rank = 0; rank < answers.size(); ++rank) {
      if (agree(answers[rank], expected[rank], kTrainTolerance)) continue;
      throw std::runtime_error(fmt::format("{}: losses and sums of parameters on rank {} are {} of ours, but {} of {}",
                                           what.name, rank, expected[rank], answers[rank], side.name));
    }
  }
}

TrainBlocks take_train_blocks(const std::vector<TrainSide>& sides, bool is_quick, int num_rounds) {
  const int num_warm = is_quick ? 0 : 1;
  const int num_steps = is_quick ? kQuickTrainSteps : kTrainSteps;
  TrainBlocks blocks;
  TurnOrder order(sides.size());
  for (int round = 0; round < num_rounds; ++round) {
    for (const size_t i : order.next()) {
      const TrainSide& side = sides[i];
      const auto answers = side.team->ask(fmt::format("run {} {} {}", side.trainee, num_warm, num_steps));
      blocks[side.name].push_back(train_block(answers, is_train_floor(side)));
    }
  }
  return blocks;
}

}  // namespace

std::vector<Row> run_train(const Settings& settings) {
  std::vector<std::string> names;
  for (const auto& what : kTrainCases) names.push_back(what.name);
  check_case(settings.only_case, names);
  const TrainData data;
  std::vector<Row> rows;
  for (const auto& what : kTrainCases) {
    if (!settings.only_case.empty() && settings.only_case != what.name) continue;
    const auto sides = start_train_sides(what, settings, data.folder());
    for (const auto& side : sides) {
      side.team->ask(fmt::format("copy {} {} {} {} {}", side.trainee, what.name, side.num_workers, what.batch_size,
                                 data.of(what)));
    }
    verify_training(what, sides);
    const auto blocks = take_train_blocks(sides, settings.is_quick, settings.rounds(kTrainRounds, kQuickTrainRounds));
    for (const auto& side : sides) side.team->ask("drop");
    for (Row& row : train_rows(what, kTrainRanks, blocks)) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace cohort::bench
