#include "cohort/files/tensors/safetensors/safetensors_header.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace cohort::files {
namespace {

SafetensorsHeader two_tensors() {
  return {.entries = {{"a", Dtype::kFloat32, {2, 3}, 8, 32}, {"b", Dtype::kInt64, {}, 0, 8}},
          .metadata = {{"key", "value"}}};
}

TEST(SafetensorsHeader, ParsesWhatItFormats) {
  const auto text = format_safetensors_header(two_tensors());
  ASSERT_TRUE(text.ok());
  EXPECT_EQ((8 + text->size()) % 64, 0u) << "the data do not begin with a line of the cache";
  const auto header = parse_safetensors_header(*text, 32);
  ASSERT_TRUE(header.ok()) << header.error().describe();
  ASSERT_EQ(header->entries.size(), 2u);
  EXPECT_EQ(header->entries[0].name, "a");
  EXPECT_EQ(header->entries[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(header->entries[1].dtype, Dtype::kInt64);
  EXPECT_EQ(header->metadata.at("key"), "value");
}

TEST(SafetensorsHeader, WholeLinesComeFirstThenWideElements) {
  std::vector<SafetensorsEntry> entries{{"bytes", Dtype::kUInt8, {3}},
                                        {"odd", Dtype::kInt64, {7}},
                                        {"line", Dtype::kUInt8, {64}},
                                        {"short", Dtype::kFloat16, {5}},
                                        {"lines", Dtype::kFloat32, {32}}};
  EXPECT_EQ(place_entries(entries), (std::vector<size_t>{4, 2, 1, 3, 0}));
  EXPECT_EQ(entries[4].begin, 0u);
  EXPECT_EQ(entries[2].begin, 128u);
  EXPECT_EQ(entries[1].begin, 192u);
  EXPECT_EQ(entries[3].begin, 248u);
  EXPECT_EQ(entries[0].begin, 258u);
}

TEST(SafetensorsHeader, ReservedNameMessage) {
  SafetensorsHeader header = two_tensors();
  header.entries[0].name = "__metadata__";
  EXPECT_EQ(format_safetensors_header(header).error().describe(),
            "tensor \"__metadata__\": this name is reserved by the file format");
}

// In time that grows with their number, not its square: a test that hangs has failed.
TEST(SafetensorsHeader, HasAsManyTensorsAsItMay) {
  SafetensorsHeader header;
  for (int i = 0; i < 300'000; ++i)
    header.entries.push_back({"layer." + std::to_string(i), Dtype::kFloat32, {0}, 0, 0});
  const auto parsed = parse_safetensors_header(*format_safetensors_header(header), 0);
  ASSERT_TRUE(parsed.ok()) << parsed.error().describe();
  ASSERT_EQ(parsed->entries.size(), 300'000u);
  EXPECT_EQ(parsed->entries[299'999].name, "layer.299999");
}

// The library for JSON would take a frame of the stack for each bracket.
TEST(SafetensorsHeader, NestedWithoutEndMessage) {
  const auto deep = std::string(300'000, '[') + std::string(300'000, ']');
  EXPECT_EQ(parse_safetensors_header(R"({"a":{"dtype":"F32","data_offsets":[0,0],"shape":[)" + deep + "]}}", 0)
                .error()
                .message(),
            "the header is nested deeper than any description of tensors");
  EXPECT_EQ(
      parse_safetensors_header(R"({"a":{"dtype":"F32","data_offsets":[0,0],"shape":[[1]]}})", 0).error().message(),
      "tensor \"a\": shape holds [1], which is not a whole number in [0, 2^63)");
}

TEST(SafetensorsHeader, LongNonsenseIsShortenedMessage) {
  const auto text = R"({"a":{"dtype":"F32","data_offsets":[0,0],"shape":[")" + std::string(100'000, 'x') + R"("]}})";
  EXPECT_EQ(parse_safetensors_header(text, 0).error().message(),
            "tensor \"a\": shape holds \"" + std::string(199, 'x') + "..., which is not a whole number in [0, 2^63)");
}

TEST(SafetensorsHeader, DtypeWithoutANameMessage) {
  SafetensorsHeader header = two_tensors();
  header.entries[0].dtype = Dtype::kComplex128;
  EXPECT_EQ(format_safetensors_header(header).error().describe(),
            "tensor \"a\": the format has no name for complex128");
}

// Whatever stands in the text: an error, or a table whose tensors fill the data exactly.
TEST(SafetensorsHeader, BelievesNothingThatDoesNotAddUp) {
  const std::string good = *format_safetensors_header(two_tensors());
  const std::string letters = "{}[]\",:-0123456789eE.aFI\\u\xff \0";
  std::mt19937 random(1);
  int num_accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    const int num_changes = 1 + static_cast<int>(random() % 4);
    for (int change = 0; change < num_changes; ++change) {
      const size_t place = random() % text.size();
      if (random() % 4 == 0) {
        text.erase(place, 1);
      } else {
        text[place] = letters[random() % letters.size()];
      }
    }
    const auto header = parse_safetensors_header(text, 32);
    if (!header) continue;
    ++num_accepted;
    uint64_t num_bytes = 0;
    for (const SafetensorsEntry& entry : header->entries) {
      auto size = static_cast<uint64_t>(info_of(entry.dtype).size);
      for (const int64_t length : entry.shape) size *= static_cast<uint64_t>(length);
      EXPECT_EQ(entry.end - entry.begin, size) << text;
      num_bytes += size;
    }
    EXPECT_EQ(num_bytes, 32u) << text;
  }
  EXPECT_GT(num_accepted, 100) << "changes inside names and metadata do no harm";
}

}  // namespace
}  // namespace cohort::files
