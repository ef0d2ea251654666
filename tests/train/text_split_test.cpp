#include "cohort/train/text_split.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "cohort/base/file/file.h"

namespace cohort::train {
namespace {

namespace fs = std::filesystem;

class TextSplitTest : public testing::Test {
 protected:
  void SetUp() override { folder_ = base::make_unique_directory(fs::temp_directory_path() / "text_split_").value(); }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  TextSplit split(int64_t context, double fraction) {
    return split_text(data::TextCorpus::open(folder_), context, fraction);
  }
  // File i holds lines that only it has: any window tells where it is from.
  static std::string text_of(int i, int num_lines = 30) {
    std::string text;
    for (int line = 0; line < num_lines; ++line) text.append("<").append(std::to_string(1000 + i)).append(">");
    return text;
  }
  static std::set<std::string> tags(const TextSubset& part) {
    std::set<std::string> found;
    for (const auto& stretch : part.stretches(0)) {
      for (size_t at = 0; (at = stretch.text.find('<', at)) != std::string::npos; ++at) {
        if (at + 6 <= stretch.text.size()) found.insert(stretch.text.substr(at, 6));
      }
    }
    return found;
  }

  fs::path folder_;
};

TEST_F(TextSplitTest, HoldsOutWholeFiles) {
  for (int i = 0; i < 100; ++i) write(std::to_string(1000 + i), text_of(i));
  const TextSplit result = split(16, 0.2);
  const auto train = tags(result.train), held_out = tags(result.held_out);
  EXPECT_EQ(result.num_files, 100);
  EXPECT_GT(held_out.size(), 8u);
  EXPECT_LT(held_out.size(), 40u);
  EXPECT_EQ(train.size() + held_out.size(), 100u);
  for (const auto& tag : held_out) EXPECT_FALSE(train.contains(tag)) << tag;
}

TEST_F(TextSplitTest, IsTheSameEachTimeAndInAnyOrderOfFiles) {
  for (int i = 0; i < 60; ++i) write(std::to_string(1000 + i), text_of(i));
  const auto before = tags(split(16, 0.2).held_out);
  EXPECT_EQ(before, tags(split(16, 0.2).held_out));
  for (int i = 0; i < 60; ++i) fs::rename(folder_ / std::to_string(1000 + i), folder_ / std::to_string(5000 - i));
  EXPECT_EQ(before, tags(split(16, 0.2).held_out));
}

TEST_F(TextSplitTest, LeavesCopiesOut) {
  for (int i = 0; i < 60; ++i) write(std::to_string(1000 + i), text_of(i));
  const int64_t targets = split(16, 0.2).train.num_targets() + split(16, 0.2).held_out.num_targets();
  for (int i = 0; i < 60; ++i) write(std::string("copy").append(std::to_string(i)), text_of(i));
  const TextSplit result = split(16, 0.2);
  EXPECT_EQ(result.num_files, 120);
  EXPECT_EQ(result.num_duplicates, 60);
  EXPECT_NEAR(static_cast<double>(result.train.num_targets() + result.held_out.num_targets()),
              static_cast<double>(targets), 64.0);
}

TEST_F(TextSplitTest, SplitsOneFileByPosition) {
  write("only", text_of(0, 100) + text_of(1, 100));
  const TextSplit result = split(10, 0.1);
  EXPECT_EQ(result.held_out.size(), 12);
  EXPECT_EQ(result.train.size(), 107);
  EXPECT_EQ(tags(result.held_out), std::set<std::string>{"<1001>"});
}

TEST_F(TextSplitTest, StretchesJoinNeighborsAndKeepHistory) {
  write("only", "0123456789abcdefghijklmnopqrstuvwxyz");
  const auto dataset = std::make_shared<const data::TokenDataset>(data::TextCorpus::open(folder_),
                                                                  data::TokenDatasetOptions{.context_length = 4});
  const TextSubset part(dataset, {1, 2, 5});
  const auto stretches = part.stretches(/*history=*/3);
  ASSERT_EQ(stretches.size(), 2u);
  EXPECT_EQ(stretches[0].text, "23456789abc");
  EXPECT_EQ(stretches[0].first_target, 3u);
  EXPECT_EQ(stretches[1].text, "ijklmno");
  EXPECT_EQ(stretches[1].text.size() - stretches[1].first_target, 4u);
  EXPECT_EQ(part.stretches(0)[1].text, "klmno");
  EXPECT_EQ(part.num_targets(), 12);
}

TEST_F(TextSplitTest, SharesAndSamplesEvenly) {
  write("only", text_of(0, 200));
  const auto dataset = std::make_shared<const data::TokenDataset>(data::TextCorpus::open(folder_),
                                                                  data::TokenDatasetOptions{.context_length = 8});
  const TextSubset part(dataset, {0, 1, 2, 3, 4, 5, 6});
  EXPECT_EQ(part.shard(0, 2).size(), 4);
  EXPECT_EQ(part.shard(1, 2).size(), 3);
  EXPECT_TRUE(at::equal(part.shard(1, 2).get(1).first, dataset->get(3).first));
  EXPECT_EQ(part.evenly_spaced(100).size(), 7);
  EXPECT_TRUE(at::equal(part.evenly_spaced(3).get_batch({2}).first[0], dataset->get(4).first));
}

TEST_F(TextSplitTest, Message) {
  write("only", "short");
  const auto message = [&](int64_t context, double fraction) -> std::string {
    try {
      split(context, fraction);
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "no error";
  };
  EXPECT_EQ(message(2, 1.5), "[cohort] split_text needs 0 < held_out_fraction < 1, but got 1.5");
  EXPECT_EQ(message(4, 0.5),
            "[cohort] a text of 5 bytes in 1 files is too small to train on and hold out windows of 4 bytes\n"
            "  hint: give more text, or a shorter context");
}

}  // namespace
}  // namespace cohort::train
