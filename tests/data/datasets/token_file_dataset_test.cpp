// What the reader beneath refuses is tested in tests/files/tokens.
#include "cohort/data/datasets/token_file_dataset.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/data/error_text.h"
#include "tests/support/temporary_folder.h"

namespace cohort::data {
namespace {

using test::error_text;

class TokenFileDatasets : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

  cohort::test::TemporaryFolder folder_;
};

std::string tokens_of(int64_t count) {
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) bytes += {static_cast<char>(i * 7 & 0xff), static_cast<char>(i * 7 >> 8)};
  return bytes;
}

TEST_F(TokenFileDatasets, TargetsAreTheInputOneTokenLater) {
  const TokenFileDataset dataset(write("a.bin", tokens_of(1000)), {.context_length = 3});
  EXPECT_EQ(dataset.size(), 333);
  const auto [input, target] = dataset.get(100);
  EXPECT_TRUE(input.equal(at::tensor({2100, 2107, 2114}, at::kLong)));
  EXPECT_TRUE(target.equal(at::tensor({2107, 2114, 2121}, at::kLong)));
  const TokenFileDataset every(folder_ / "a.bin", {.context_length = 3, .stride = 1});
  EXPECT_EQ(every.size(), 997);
  const auto [inputs, targets] = every.get_batch({996, 1});
  EXPECT_TRUE(inputs.equal(at::tensor({6972, 6979, 6986, 7, 14, 21}, at::kLong).view({2, 3})));
  EXPECT_TRUE(targets.equal(inputs.add(7)));
}

TEST_F(TokenFileDatasets, Formats) {
  const std::string file = write("a.bin", std::string("\1\0\2\0\3\0\4\0", 8));
  EXPECT_TRUE(TokenFileDataset(file, {.context_length = 1, .format = TokenFileFormat::kUInt32})
                  .get(0)
                  .second.equal(at::tensor({0x40003}, at::kLong)));
  EXPECT_EQ(TokenFileDataset(file, {.context_length = 1, .format = TokenFileFormat::kUInt16}).num_tokens(), 4);
}

TEST_F(TokenFileDatasets, Messages) {
  const std::string file = write("a.bin", tokens_of(10));
  EXPECT_EQ(error_text<c10::ValueError>([&] { TokenFileDataset(file, {.context_length = 10}); }),
            "[cohort] \"" + file +
                "\" has 10 tokens: too few for a window of 10 tokens and the token after it\n  hint: use a shorter "
                "context_length or more text");
  EXPECT_EQ(error_text<c10::ValueError>([&] { TokenFileDataset(file, {.vocab_size = 0}); }),
            "[cohort] TokenFileDataset needs vocab_size >= 1, but got 0");
  const TokenFileDataset dataset(file, {.context_length = 3, .vocab_size = 36});
  EXPECT_TRUE(dataset.get(0).first.equal(at::tensor({0, 7, 14}, at::kLong)));
  EXPECT_EQ(error_text<c10::Error>([&] { dataset.get(1); }),
            "[cohort] \"" + file + "\", at byte 12: expected a token below vocab_size=36, but found 42");
  EXPECT_EQ(error_text<c10::IndexError>([&] { dataset.get(3); }),
            "[cohort] example 3 is out of range for a TokenFileDataset of 3 examples");
}

}  // namespace
}  // namespace cohort::data
