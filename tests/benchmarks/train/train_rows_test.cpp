#include "benchmarks/train/train_rows.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace cohort::bench {
namespace {

const TrainCase kText{.name = "gpt", .batch_size = 2, .units_per_sample = 100, .unit = "tokens/s"};

std::vector<TrainBlock> seven(const TrainBlock& block) { return std::vector<TrainBlock>(7, block); }

TrainBlocks all_sides() {
  return {{"ours-0", seven({.data = 1, .forward = 22, .backward = 43, .step = 4})},
          {"ours-1", seven({.data = 0, .forward = 30, .backward = 46, .step = 4})},
          {"ours-shared-0", seven({.data = 1, .forward = 21, .backward = 42, .step = 3})},
          {"trainer-0", seven({.data = 1, .forward = 22, .backward = 44, .step = 5})},
          {"ours-floor", seven({.forward = 20, .backward = 40})},
          {"python-0", seven({.data = 9, .forward = 30, .backward = 53, .step = 8})},
          {"python-1", seven({.data = 2, .forward = 28, .backward = 52, .step = 8})},
          {"python-fused-0", seven({.data = 9, .forward = 26, .backward = 51, .step = 4})},
          {"python-floor", seven({.forward = 25, .backward = 45})}};
}

const Row& row_of(const std::vector<Row>& rows, const std::string& name, const std::string& rival) {
  for (const Row& row : rows) {
    if (row.case_name == "gpt/ranks=2" + name && row.rival_name == rival) return row;
  }
  throw std::runtime_error("there is no row " + name + " beside " + rival);
}

TEST(TrainBlock, IsTheMeanOfTheRanksStepsOfTraining) {
  const TrainBlock block = train_block({"1 10 20 2 3 20 40 4", "3 20 40 4 1 10 20 2"}, false);
  EXPECT_EQ(block.data, 2);
  EXPECT_EQ(block.forward, 15);
  EXPECT_EQ(block.backward, 30);
  EXPECT_EQ(block.step, 3);
  EXPECT_EQ(block.passes(), 45);
  EXPECT_EQ(block.total(), 50);
}

TEST(TrainBlock, HasForEachStepOfAFloorTheSlowerRank) {
  const TrainBlock block = train_block({"0 10 20 0 0 20 44 0", "0 11 10 0 0 30 40 0"}, true);
  EXPECT_EQ(block.forward, (10 + 30) / 2.0);
  EXPECT_EQ(block.backward, (20 + 40) / 2.0);
}

TEST(TrainBlock, RefusesWhatIsNoAnswerMessage) {
  const auto message = [](const std::vector<std::string>& answers) -> std::string {
    try {
      train_block(answers, false);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({"1 2 ok 4"}), "a rank answered \"1 2 ok 4\" for the parts of its steps");
  EXPECT_EQ(message({"1 2 3"}), "a rank answered with 3 numbers for the parts of its steps");
  EXPECT_EQ(message({"1 2 3 4", "1 2 3 4 1 2 3 4"}), "ranks answered for different numbers of steps");
}

TEST(TrainRows, CompareTheFastestNumbersOfWorkers) {
  const auto rows = train_rows(kText, 2, all_sides());
  const Row& rate = row_of(rows, "", "python-ddp-gloo");
  EXPECT_DOUBLE_EQ(*rate.ours, 1e3 * 400 / 70);
  EXPECT_DOUBLE_EQ(*rate.rival, 1e3 * 400 / 90);
  EXPECT_DOUBLE_EQ(*rate.ratio, 90.0 / 70);
  EXPECT_EQ(rate.unit, "tokens/s");
  EXPECT_EQ(rate.num_pairs, 7u);
  EXPECT_EQ(rate.note, "ours-0: 70.0 ms a step, python-1: 90.0");
  EXPECT_DOUBLE_EQ(*row_of(rows, "", "python-fused").ratio, 90.0 / 70);
  EXPECT_DOUBLE_EQ(*row_of(rows, "", "python-0").ratio, 100.0 / 70);
  EXPECT_DOUBLE_EQ(*row_of(rows, "", "ours-1").ratio, 80.0 / 70);
  EXPECT_DOUBLE_EQ(*row_of(rows, "/shared-allocator", "python-ddp-gloo").ratio, 90.0 / 67);
  EXPECT_DOUBLE_EQ(*row_of(rows, "/trainer", "python-ddp-gloo").ratio, 90.0 / 72);
}

TEST(TrainRows, SubtractEachSidesOwnFloorOrOurs) {
  const auto rows = train_rows(kText, 2, all_sides());
  const Row& own = row_of(rows, "/outside-kernels", "python-ddp-gloo");
  EXPECT_EQ(own.ours, 70 - 60);
  EXPECT_EQ(own.rival, 90 - 70);
  EXPECT_DOUBLE_EQ(*own.ratio, 2);
  EXPECT_EQ(own.note, "ours is 0.50 of python-ddp-gloo's");
  EXPECT_EQ(own.unit, "ms");
  EXPECT_EQ(row_of(rows, "/outside-kernels/one-floor", "python-ddp-gloo").rival, 90 - 60);
  EXPECT_EQ(row_of(rows, "/outside-kernels/one-floor", "python-fused").rival, 90 - 60);
  EXPECT_EQ(row_of(rows, "/shared-allocator/outside-kernels", "python-ddp-gloo").ours, 67 - 60);
  EXPECT_EQ(row_of(rows, "/trainer/outside-kernels", "python-ddp-gloo").ours, 72 - 60);
}

TEST(TrainRows, SplitAStep) {
  const auto rows = train_rows(kText, 2, all_sides());
  const auto pair = [&](const std::string& part) {
    const Row& row = row_of(rows, "/part=" + part, "python-ddp-gloo");
    return std::pair(*row.ours, *row.rival);
  };
  EXPECT_EQ(pair("data"), std::pair(1.0, 2.0));
  EXPECT_EQ(pair("forward"), std::pair(20.0, 25.0));
  EXPECT_EQ(pair("backward"), std::pair(40.0, 45.0));
  EXPECT_EQ(pair("communication"), std::pair(65.0 - 60, 80.0 - 70));
  EXPECT_EQ(pair("step"), std::pair(4.0, 8.0));
}

TEST(TrainRows, HaveNoFiguresOfAPythonThatIsMissing) {
  auto blocks = all_sides();
  std::erase_if(blocks, [](const auto& side) { return side.first.starts_with("python"); });
  const auto rows = train_rows(kText, 2, blocks);
  EXPECT_EQ(row_of(rows, "/outside-kernels", "python-ddp-gloo").ours, 10);
  EXPECT_EQ(row_of(rows, "/part=communication", "python-ddp-gloo").ours, 5);
  for (const Row& row : rows) {
    EXPECT_TRUE(row.ours) << row.case_name;
    if (row.rival_name == "ours-1") continue;
    EXPECT_FALSE(row.rival || row.ratio) << row.case_name;
    EXPECT_EQ(row.note, "there is no Python with PyTorch in .venv") << row.case_name;
  }
}

}  // namespace
}  // namespace cohort::bench
