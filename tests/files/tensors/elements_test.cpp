#include "cohort/files/tensors/elements/elements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

namespace cohort::files {
namespace {

using testing::ElementsAre;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string bytes_of(const std::vector<uint16_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), 2 * values.size()};
}

std::vector<double> numbers(Dtype dtype, const std::string& bytes) {
  std::vector<double> result;
  append_numbers(dtype, bytes, result);
  return result;
}

uint16_t encoded(Dtype dtype, double number) {
  uint16_t bits = 0;
  write_numbers(dtype, std::span(&number, 1), reinterpret_cast<char*>(&bits));
  return bits;
}

TEST(Elements, EveryHalfThereAndBack) {
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBFloat16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const double number = numbers(dtype, bytes_of({static_cast<uint16_t>(bits)}))[0];
      if (std::isnan(number)) continue;
      ASSERT_EQ(encoded(dtype, number), bits) << info_of(dtype).torch_name << " " << number;
    }
  }
}

TEST(Elements, HalvesRoundToNearestEven) {
  // 1 + 2^-11 lies between 1 and the next one.
  EXPECT_EQ(encoded(Dtype::kFloat16, 1 + 0x1p-11), 0x3c00);
  EXPECT_EQ(encoded(Dtype::kFloat16, 1 + 0x1p-11 + 0x1p-40), 0x3c01);
  EXPECT_EQ(encoded(Dtype::kFloat16, 1 + 3 * 0x1p-11), 0x3c02);
  EXPECT_EQ(encoded(Dtype::kFloat16, 2 - 0x1p-12), 0x4000);
  EXPECT_EQ(encoded(Dtype::kFloat16, 65519.0), 0x7bff);
  EXPECT_EQ(encoded(Dtype::kFloat16, -65520.0), 0xfc00);
  EXPECT_EQ(encoded(Dtype::kFloat16, 0x1p-25), 0);
  EXPECT_EQ(encoded(Dtype::kFloat16, 0x1p-25 + 0x1p-60), 1);
  EXPECT_EQ(encoded(Dtype::kFloat16, -0.0), 0x8000);
  EXPECT_EQ(encoded(Dtype::kFloat16, std::nan("")), 0x7e00);
  EXPECT_EQ(encoded(Dtype::kBFloat16, 1 + 0x1p-8), 0x3f80);
  // A float would round this to the tie above.
  EXPECT_EQ(encoded(Dtype::kBFloat16, 1 + 0x1p-8 + 0x1p-40), 0x3f81);
  EXPECT_EQ(encoded(Dtype::kBFloat16, 1 + 3 * 0x1p-8 - 0x1p-40), 0x3f81);
  EXPECT_EQ(encoded(Dtype::kBFloat16, 1e39), 0x7f80);
  EXPECT_EQ(encoded(Dtype::kBFloat16, std::nan("")), 0x7fc0);
}

TEST(Elements, IntegersAndBooleans) {
  EXPECT_THAT(numbers(Dtype::kBool, std::string("\0\1", 2)), ElementsAre(0, 1));
  EXPECT_THAT(numbers(Dtype::kInt8, "\xff\x7f"), ElementsAre(-1, 127));
  EXPECT_THAT(numbers(Dtype::kUInt8, "\xff"), ElementsAre(255));
  EXPECT_THAT(numbers(Dtype::kInt16, "\xfe\xff"), ElementsAre(-2));
  EXPECT_THAT(numbers(Dtype::kUInt16, "\xfe\xff"), ElementsAre(65534));
  EXPECT_THAT(numbers(Dtype::kInt32, "\xff\xff\xff\xff"), ElementsAre(-1));
  EXPECT_THAT(numbers(Dtype::kUInt32, "\xff\xff\xff\xff"), ElementsAre(4294967295.0));
  EXPECT_THAT(numbers(Dtype::kInt64, std::string(8, '\xff')), ElementsAre(-1));
  EXPECT_THAT(numbers(Dtype::kUInt64, std::string(8, '\xff')), ElementsAre(18446744073709551615.0));
}

// Values as PyTorch has them.
TEST(Elements, EightBitFloats) {
  EXPECT_THAT(numbers(Dtype::kFloat8E4M3Fn, "\x7e\x01\xfe\x38"), ElementsAre(448, 0x1p-9, -448, 1));
  EXPECT_TRUE(std::isnan(numbers(Dtype::kFloat8E4M3Fn, "\x7f")[0]));
  EXPECT_THAT(numbers(Dtype::kFloat8E5M2, "\x7b\x01\x7c\xfc"), ElementsAre(57344, 0x1p-16, kInfinity, -kInfinity));
  EXPECT_THAT(numbers(Dtype::kFloat8E4M3FnUz, "\x7f\x01"), ElementsAre(240, 0x1p-10));
  EXPECT_TRUE(std::isnan(numbers(Dtype::kFloat8E4M3FnUz, "\x80")[0]));
  EXPECT_THAT(numbers(Dtype::kFloat8E5M2FnUz, "\x7f\x01"), ElementsAre(57344, 0x1p-17));
  EXPECT_THAT(numbers(Dtype::kFloat8E8M0Fnu, "\x7f\x80"), ElementsAre(1, 2));
  EXPECT_TRUE(std::isnan(numbers(Dtype::kFloat8E8M0Fnu, "\xff")[0]));
}

TEST(Elements, ComplexNumbersAreTwo) {
  const float values[] = {1.5F, -2};
  EXPECT_THAT(numbers(Dtype::kComplex64, std::string(reinterpret_cast<const char*>(values), 8)), ElementsAre(1.5, -2));
  EXPECT_EQ(components_of(Dtype::kComplex64), 2);
  EXPECT_EQ(components_of(Dtype::kFloat32), 1);
  EXPECT_TRUE(is_inexact(Dtype::kFloat16));
  EXPECT_FALSE(is_inexact(Dtype::kUInt64));
}

}  // namespace
}  // namespace cohort::files
