#include "cohort/extras/files/arrays/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/extras/files/arrays/array_values.h"

namespace cohort::files {
namespace {

using test::big;
using test::values;
using testing::ElementsAre;

base::Result<ArrayData> parse_idx(std::string_view bytes) { return read_idx(RandomAccessFile::view("cut", bytes)); }

std::string idx_header(char code, const std::vector<uint32_t>& lengths) {
  std::string bytes = {0, 0, code, static_cast<char>(lengths.size())};
  for (const uint32_t length : lengths) bytes += big(length);
  return bytes;
}

std::string deflated(const std::string& bytes) {
  z_stream zlib = {};
  EXPECT_EQ(deflateInit2(&zlib, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&zlib, bytes.size()), '\0');
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  zlib.avail_in = static_cast<uInt>(bytes.size());
  zlib.next_out = reinterpret_cast<Bytef*>(packed.data());
  zlib.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&zlib, Z_FINISH), Z_STREAM_END);
  packed.resize(zlib.total_out);
  deflateEnd(&zlib);
  return packed;
}

TEST(Idx, ReadsEveryType) {
  const auto images = parse_idx(idx_header(0x08, {2, 1, 3}) + "abcdef").value();
  EXPECT_EQ(images.dtype, DType::kUInt8);
  EXPECT_THAT(images.shape, ElementsAre(2, 1, 3));
  EXPECT_THAT(values<char>(images), ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
  EXPECT_THAT(values<int8_t>(parse_idx(idx_header(0x09, {2}) + "\xff\x01").value()), ElementsAre(-1, 1));
  const auto shorts = parse_idx(idx_header(0x0B, {2}) + big<int16_t>(-300) + big<int16_t>(7)).value();
  EXPECT_EQ(shorts.dtype, DType::kInt16);
  EXPECT_THAT(values<int16_t>(shorts), ElementsAre(-300, 7));
  EXPECT_THAT(values<int32_t>(parse_idx(idx_header(0x0C, {1}) + big<int32_t>(-70000)).value()), ElementsAre(-70000));
  EXPECT_THAT(values<float>(parse_idx(idx_header(0x0D, {1}) + big(1.5f)).value()), ElementsAre(1.5f));
  EXPECT_THAT(values<double>(parse_idx(idx_header(0x0E, {1}) + big(-0.1)).value()), ElementsAre(-0.1));
  EXPECT_THAT(parse_idx(idx_header(0x08, {0, 28})).value().shape, ElementsAre(0, 28));
}

TEST(Idx, ReadsPackedFiles) {
  std::string pixels;
  for (int i = 0; i < 200'000; ++i) pixels += static_cast<char>(i * i >> 3);
  const std::string bytes = idx_header(0x08, {400, 500}) + pixels;
  const auto array = parse_idx(deflated(bytes)).value();
  EXPECT_EQ(std::string(array.span().begin(), array.span().end()), pixels);
  // Several parts, as `cat a.gz b.gz` makes.
  const auto parts = parse_idx(deflated(bytes.substr(0, 70'000)) + deflated(bytes.substr(70'000))).value();
  EXPECT_EQ(std::string(parts.span().begin(), parts.span().end()), pixels);
}

TEST(Idx, TruncationIsAnError) {
  const std::string bytes = idx_header(0x0B, {2, 2}) + "abcdefgh";
  test::expect_truncation_is_an_error(bytes, parse_idx);
  test::expect_truncation_is_an_error(deflated(bytes), parse_idx);
}

TEST(Idx, DamageMessages) {
  const auto message = [](const std::string& bytes) { return parse_idx(bytes).error().describe(); };
  EXPECT_EQ(message("PK\3\4"),
            "\"cut\", at byte 0: expected two zero bytes, with which an IDX file begins, but found 0x50 0x4b");
  EXPECT_EQ(message(idx_header(0x0A, {1}) + "a"),
            "\"cut\", at byte 2: expected a type of elements of IDX (0x08, 0x09, 0x0B, 0x0C, 0x0D or 0x0E), but found "
            "0x0a");
  EXPECT_EQ(message(idx_header(0x0C, {3, 2}) + "abcd"),
            "\"cut\", at byte 12: expected 24 bytes of int32 elements, as its header says [3, 2], but found 4 before "
            "the end of the file");
  EXPECT_EQ(
      message(idx_header(0x08, {3}) + "abcd"),
      "\"cut\", at byte 8: expected 3 bytes of uint8 elements, as its header says [3], but found 4 before the end "
      "of the file");
  EXPECT_EQ(message(idx_header(0x08, {UINT32_MAX, UINT32_MAX})),
            "\"cut\", at byte 4: expected lengths of an array, but found 4294967295 x 4294967295");
}

TEST(Idx, DamagedPackedFilesMessages) {
  const auto message = [](const std::string& bytes) { return parse_idx(bytes).error().describe(); };
  const std::string bomb = deflated(idx_header(0x08, {1u << 30}));
  EXPECT_EQ(message(bomb),
            "\"cut\", at byte 0: expected 1073741824 bytes of uint8 elements, as its header says "
            "[1073741824], but found a packed file of only " +
                std::to_string(bomb.size()) + " bytes");
  EXPECT_EQ(message(deflated(idx_header(0x08, {3}) + "ab")),
            "\"cut\", at byte 10 of its unpacked content: expected 1 more bytes of elements, but found the end of it");
  EXPECT_EQ(message(deflated(idx_header(0x08, {3}) + "abcd")),
            "\"cut\", at byte 11 of its unpacked content: expected the end of it, but found more");
  std::string wrong_checksum = deflated(idx_header(0x08, {3}) + "abc");
  wrong_checksum[wrong_checksum.size() - 8] ^= 1;
  EXPECT_EQ(message(wrong_checksum), "\"cut\", at byte " + std::to_string(wrong_checksum.size() - 4) +
                                         ": expected compressed data of gzip, but found incorrect data check");
}

}  // namespace
}  // namespace cohort::files
