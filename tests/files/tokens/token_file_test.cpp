#include "cohort/files/tokens/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/files/file_bytes.h"

namespace cohort::files {
namespace {

using test::little;
using testing::ElementsAre;

std::string llm_c(int32_t magic, int32_t version, int32_t count, const std::string& tokens) {
  std::string header = little(magic) + little(version) + little(count);
  header.resize(1024);
  return header + tokens;
}

base::Result<std::vector<int64_t>> all_tokens(std::string_view bytes, TokenFormat format = TokenFormat::kDetect) {
  auto file = TokenFile::read_header(RandomAccessFile::view("cut", bytes), format);
  if (!file) return file.error();
  std::vector<int64_t> tokens(static_cast<size_t>(file->size()));
  if (auto done = file->read(0, tokens); !done) return done.error();
  return tokens;
}

const std::string kShorts = little<uint16_t>(1) + little<uint16_t>(65535) + little<uint16_t>(300);
const std::string kLongs = little<uint32_t>(128255) + little<uint32_t>(UINT32_MAX);

TEST(TokenFile, ReadsRawTokens) {
  EXPECT_THAT(all_tokens(kShorts).value(), ElementsAre(1, 65535, 300));
  EXPECT_THAT(all_tokens(kLongs, TokenFormat::kRawUInt32).value(), ElementsAre(128255, UINT32_MAX));
  EXPECT_TRUE(all_tokens("").value().empty());
  // With the format said, nothing is taken for a header.
  EXPECT_THAT(all_tokens(little(20240520), TokenFormat::kRawUInt16).value(), ElementsAre(55432, 308));
}

TEST(TokenFile, ReadsFilesOfLlmC) {
  EXPECT_THAT(all_tokens(llm_c(20240520, 1, 3, kShorts)).value(), ElementsAre(1, 65535, 300));
  EXPECT_THAT(all_tokens(llm_c(20240801, 7, 2, kLongs)).value(), ElementsAre(128255, UINT32_MAX));
}

TEST(TokenFile, ReadsWindows) {
  std::string bytes;
  for (uint16_t token = 0; token < 5000; ++token) bytes += little<uint16_t>(static_cast<uint16_t>(token * 13));
  const auto file = TokenFile::read_header(RandomAccessFile::view("a.bin", bytes)).value();
  for (const int64_t first : {0, 1, 777, 4000}) {
    std::vector<int64_t> window(1000);
    ASSERT_TRUE(file.read(first, window).ok());
    for (size_t i = 0; i < window.size(); ++i) {
      ASSERT_EQ(window[i], static_cast<uint16_t>((first + static_cast<int64_t>(i)) * 13));
    }
  }
}

TEST(TokenFile, TruncationIsAnError) {
  const auto read = [](std::string_view bytes) { return all_tokens(bytes, TokenFormat::kLlmC); };
  test::expect_truncation_is_an_error(llm_c(20240520, 1, 3, kShorts), read);
}

TEST(TokenFile, DamageMessages) {
  const auto message = [](const std::string& bytes, TokenFormat format) {
    return all_tokens(bytes, format).error().describe();
  };
  EXPECT_EQ(message("abc", TokenFormat::kDetect),
            "\"cut\", at byte 2: expected a token of 2 bytes, but found only 1 before the end of the file");
  EXPECT_EQ(message("abcdef", TokenFormat::kRawUInt32),
            "\"cut\", at byte 4: expected a token of 4 bytes, but found only 2 before the end of the file");
  EXPECT_EQ(message(llm_c(5, 1, 3, kShorts), TokenFormat::kLlmC),
            "\"cut\", at byte 0: expected 20240520 or 20240801, llm.c's magic numbers, but found 5");
  EXPECT_EQ(message(llm_c(20240801, 1, 2, kLongs), TokenFormat::kDetect),
            "\"cut\", at byte 4: expected version 7 of llm.c's files, but found 1");
  EXPECT_EQ(message(llm_c(20240520, 1, 4, kShorts), TokenFormat::kDetect),
            "\"cut\", at byte 8: expected the number of tokens in the 6 bytes after the header, but found 4, each of 2 "
            "bytes");
  EXPECT_EQ(
      message(llm_c(20240520, 1, -1, kShorts), TokenFormat::kDetect),
      "\"cut\", at byte 8: expected the number of tokens in the 6 bytes after the header, but found -1, each of 2 "
      "bytes");
}

TEST(TokenFile, AFileThatIsShortenedIsAnError) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("tokens_shortened." + std::to_string(getpid()))).string();
  std::ofstream(path) << std::string(size_t{1} << 20, 'x');
  const auto file = TokenFile::open(path).value();
  std::vector<int64_t> window(4);
  EXPECT_TRUE(file.read(500'000, window).ok());
  std::filesystem::resize_file(path, 1'000'002);
  const auto done = file.read(500'000, window);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(
      done.error().describe(),
      "\"" + path +
          "\", at byte 1000002: expected 6 more bytes of tokens, but found the end of the file, which had 1048576 "
          "bytes when it was opened: it has been shortened while it was read");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace cohort::files
