#include "cohort/shm/kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "tests/shm/kernel_oracle.h"

namespace cohort::shm {
namespace {

constexpr size_t kCounts[] = {0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 257, 1000, 4099};
constexpr size_t kMostElements = 4099;
constexpr int kMostInputs = 8;
constexpr double kFloatFactors[kMostInputs] = {1.5, -2.75, 1.0 / 3, 1e-3, 3, -0.1, 1e-40, 7};
constexpr double kIntegerFactors[kMostInputs] = {
    1.5, -2.75, 3.99, 1e300, -1e300, std::numeric_limits<double>::quiet_NaN(), 7, -0.99};

const double* factors_for(DType dtype) { return is_float(dtype) ? kFloatFactors : kIntegerFactors; }

uint64_t element_at(DType dtype, const void* elements, size_t index) {
  uint64_t bits = 0;  // little endian, as everywhere in Cohort
  std::memcpy(&bits, static_cast<const std::byte*>(elements) + index * size_of(dtype), size_of(dtype));
  return bits;
}

void put_element(DType dtype, void* elements, size_t index, uint64_t bits) {
  std::memcpy(static_cast<std::byte*>(elements) + index * size_of(dtype), &bits, size_of(dtype));
}

/// Random bits, the corners of the format, and ordinary numbers of similar size whose sums have to be rounded.
uint64_t random_element(DType dtype, std::mt19937_64& random) {
  const uint64_t bits = random(), kind = random() % 8;
  if (dtype == DType::kBool) return bits & 1;
  const int num_bits = static_cast<int>(size_of(dtype)) * 8;
  const uint64_t mask = ~uint64_t{0} >> (64 - num_bits), top = uint64_t{1} << (num_bits - 1);
  if (!is_float(dtype)) {
    const uint64_t corners[] = {0, 1, mask, top, top - 1, top + 1, 2, mask - 1};
    return kind < 5 ? bits & mask : corners[bits % 8];
  }
  const int exponent_bits = dtype == DType::kFloat64 ? 11 : dtype == DType::kFloat16 ? 5 : 8;
  const int mantissa_bits = num_bits - 1 - exponent_bits;
  const uint64_t unit = uint64_t{1} << mantissa_bits, infinity = top - unit, one = (top >> 1) - unit;
  const uint64_t sign = bits & 1 ? top : 0;
  const uint64_t mantissa = (bits >> 1) & (unit - 1);
  // Zero, one, infinity, largest, quiet NaN, signaling NaN, NaN with all bits set, numbers below the normal range.
  const uint64_t corners[] = {0,       one, infinity, infinity - 1, infinity + unit / 2, infinity + 1,
                              top - 1, 1,   unit - 1, unit};
  if (kind == 0) return bits & mask;
  if (kind == 1) return sign | corners[(bits >> 1) % 10];
  if (kind == 2) return sign | mantissa;
  // A few bits at either end of the mantissa: sums that lie in the middle between two numbers.
  if (kind == 3) return sign | (one + (bits >> 60) * unit + (mantissa & (unit / 2 + 1)));
  return sign | (one + (bits >> 60) * unit / 2 + mantissa);
}

/// The same elements in buffers of different alignment, with guards around.
class Data {
 public:
  Data(DType dtype, int num_inputs, uint64_t seed) : dtype_(dtype), inputs_(static_cast<size_t>(num_inputs)) {
    std::mt19937_64 random(seed);
    for (auto& input : inputs_) {
      input.resize(kMostElements * size_of(dtype));
      for (size_t i = 0; i < kMostElements; ++i) put_element(dtype, input.data(), i, random_element(dtype, random));
    }
  }

  std::vector<std::byte> expected(ReduceOp op) const {
    std::vector<std::byte> result(kMostElements * size_of(dtype_));
    std::vector<uint64_t> elements(inputs_.size());
    for (size_t i = 0; i < kMostElements; ++i) {
      for (size_t rank = 0; rank < inputs_.size(); ++rank) elements[rank] = element_at(dtype_, inputs_[rank].data(), i);
      put_element(dtype_, result.data(), i, oracle::reduce(dtype_, op, elements, factors_for(dtype_)));
    }
    return result;
  }

  const std::vector<std::vector<std::byte>>& inputs() const { return inputs_; }

 private:
  DType dtype_;
  std::vector<std::vector<std::byte>> inputs_;
};

/// Where buffer number `buffer` begins, in elements past a multiple of 64 bytes.
size_t offset_of(int scheme, int buffer) {
  constexpr int kScattered[kMostInputs + 1] = {5, 0, 3, 1, 17, 7, 2, 31, 13};
  if (scheme == 0) return 0;
  return static_cast<size_t>(scheme == 1 ? 1 : kScattered[buffer]);
}

/// Runs a kernel on copies of the data and looks at what it wrote, and that it wrote nothing else.
class Bench {
 public:
  Bench(DType dtype, const Data& data) : dtype_(dtype), data_(data), buffers_(data.inputs().size() + 1) {
    for (auto& buffer : buffers_) buffer.resize((kMostElements + 32) * size_of(dtype) + 3 * kGuard);
  }

  /// in_place: the input that is the output too; -1: none. Returns "" or what is wrong.
  std::string run(ReduceKernel kernel, const std::vector<std::byte>& expected, int scheme, int in_place, size_t count) {
    const int num_inputs = static_cast<int>(data_.inputs().size());
    const size_t num_bytes = count * size_of(dtype_);
    std::vector<const void*> inputs;
    for (int i = 0; i < num_inputs; ++i) {
      std::byte* input = start(scheme, i);
      std::memcpy(input, data_.inputs()[static_cast<size_t>(i)].data(), num_bytes);
      inputs.push_back(input);
    }
    std::byte* out = start(scheme, in_place >= 0 ? in_place : num_inputs);
    std::memset(out - kGuard, 0xa5, kGuard);
    if (in_place < 0) std::memset(out, 0x5a, num_bytes);
    std::memset(out + num_bytes, 0xa5, kGuard);
    kernel(out, inputs.data(), factors_for(dtype_), num_inputs, count);
    for (size_t i = 0; i < kGuard; ++i) {
      if (out[i - kGuard] != std::byte{0xa5} || out[num_bytes + i] != std::byte{0xa5}) return "wrote beside the output";
    }
    for (int i = 0; i < num_inputs; ++i) {
      if (i != in_place &&
          std::memcmp(inputs[static_cast<size_t>(i)], data_.inputs()[static_cast<size_t>(i)].data(), num_bytes) != 0) {
        return "changed input " + std::to_string(i);
      }
    }
    if (std::memcmp(out, expected.data(), num_bytes) == 0) return "";
    return first_difference(out, expected, count);
  }

 private:
  static constexpr size_t kGuard = 64;

  std::byte* start(int scheme, int buffer) {
    std::byte* begin = buffers_[static_cast<size_t>(buffer)].data() + kGuard;
    begin += -reinterpret_cast<uintptr_t>(begin) % 64;
    return begin + offset_of(scheme, buffer) % 32 * size_of(dtype_);
  }

  std::string first_difference(const std::byte* out, const std::vector<std::byte>& expected, size_t count) const {
    for (size_t i = 0; i < count; ++i) {
      const uint64_t is = element_at(dtype_, out, i), should_be = element_at(dtype_, expected.data(), i);
      if (is == should_be) continue;
      char text[200];
      int length = std::snprintf(text, sizeof text, "element %zu is 0x%llx, should be 0x%llx; inputs", i,
                                 static_cast<unsigned long long>(is), static_cast<unsigned long long>(should_be));
      for (size_t rank = 0; rank < data_.inputs().size() && length < 180; ++rank) {
        length += std::snprintf(text + length, sizeof text - static_cast<size_t>(length), " 0x%llx",
                                static_cast<unsigned long long>(element_at(dtype_, data_.inputs()[rank].data(), i)));
      }
      return text;
    }
    return "";
  }

  DType dtype_;
  const Data& data_;
  std::vector<std::vector<std::byte>> buffers_;
};

class KernelsOf : public testing::TestWithParam<DType> {};

void check_all_places(Bench& bench, ReduceKernel kernel, const std::vector<std::byte>& expected, int num_inputs) {
  for (int scheme = 0; scheme < 3; ++scheme) {
    for (int in_place = -1; in_place < num_inputs; ++in_place) {
      for (const size_t count : kCounts) {
        const std::string problem = bench.run(kernel, expected, scheme, in_place, count);
        ASSERT_EQ(problem, "") << num_inputs << " inputs, in place at " << in_place << ", offsets " << scheme << ", "
                               << count << " elements";
      }
    }
  }
}

TEST_P(KernelsOf, EqualTheOracleInEveryBit) {
  const DType dtype = GetParam();
  for (const int num_inputs : {1, 2, 3, 4, 5, 8}) {
    const Data data(dtype, num_inputs, 1000u * static_cast<unsigned>(dtype) + static_cast<unsigned>(num_inputs));
    Bench bench(dtype, data);
    for (int op_number = 1; op_number < kNumReduceOps; ++op_number) {
      const auto op = static_cast<ReduceOp>(op_number);
      if (!can_reduce(dtype, op)) continue;
      const std::vector<std::byte> expected = data.expected(op);
      for (const InstructionSet set : available_instruction_sets()) {
        SCOPED_TRACE(std::string(name_of(set)) + " " + name_of(op));
        check_all_places(bench, reduce_kernel(dtype, op, set), expected, num_inputs);
        if (HasFatalFailure()) return;
      }
    }
  }
}

std::string name_of_case(const testing::TestParamInfo<DType>& info) { return name_of(info.param); }

INSTANTIATE_TEST_SUITE_P(DTypes, KernelsOf,
                         testing::Values(DType::kBool, DType::kInt8, DType::kUInt8, DType::kInt16, DType::kUInt16,
                                         DType::kInt32, DType::kUInt32, DType::kInt64, DType::kUInt64, DType::kFloat16,
                                         DType::kBFloat16, DType::kFloat32, DType::kFloat64),
                         name_of_case);

TEST(Kernels, ExistExactlyWhereReductionsDo) {
  for (const InstructionSet set : available_instruction_sets()) {
    for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
      for (int op = 0; op < kNumReduceOps; ++op) {
        EXPECT_EQ(reduce_kernel(static_cast<DType>(dtype), static_cast<ReduceOp>(op), set) != nullptr,
                  can_reduce(static_cast<DType>(dtype), static_cast<ReduceOp>(op)))
            << name_of(set) << ", dtype " << dtype << ", op " << op;
      }
    }
  }
  EXPECT_EQ(reduce_kernel(DType::kFloat32, ReduceOp::kSum),
            reduce_kernel(DType::kFloat32, ReduceOp::kSum, best_instruction_set()));
}

// All 16-bit floats, times factors whose products lie on, above and below the middle between two 16-bit floats, under the
// normal range and beyond the largest number.
TEST(Kernels, ConvertEvery16BitFloatAsTheOracleDoes) {
  std::vector<uint16_t> all(65536), result(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const void* input = all.data();
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const oracle::Format& format = dtype == DType::kFloat16 ? oracle::kHalfFormat : oracle::kBFloat16Format;
    for (const double factor : {1.0, 0.5, -1.5, 0.25, 1.25, 1 / 3.0, 1.0009765625, 1.00390625, 0x1.00ffffp0,
                                0x1.008001p0, 0x1p-10, 0x1p-14, 0x1.8p-24, 0x1p-126, 0x1p-140, 1e4, 1e30}) {
      for (const InstructionSet set : available_instruction_sets()) {
        reduce_kernel(dtype, ReduceOp::kPremulSum, set)(result.data(), &input, &factor, 1, all.size());
        for (size_t i = 0; i < all.size(); ++i) {
          const float product = static_cast<float>(format.value(all[i])) * static_cast<float>(factor);
          ASSERT_EQ(result[i], format.bits(product))
              << name_of(set) << " " << name_of(dtype) << " " << i << " * " << factor;
        }
      }
    }
  }
}

TEST(Kernels, RoundProductsBeforeTheyAreAdded) {
  const std::vector<float> a(67, 1 + 0x1p-12f), b(67, -1.0f);
  const double factor = 1 + 0x1p-12;
  // The square is 1 + 2^-11 + 2^-24, which a float rounds to 1 + 2^-11; a fused multiply-add would keep 2^-24.
  ASSERT_EQ(std::fma(a[0], static_cast<float>(factor), b[0]), 0x1p-11f + 0x1p-24f);
  // In both orders, because a compiler may fuse the first product or the second.
  const void* const inputs[2][2] = {{a.data(), b.data()}, {b.data(), a.data()}};
  const double factors[2][2] = {{factor, 1}, {1, factor}};
  for (const InstructionSet set : available_instruction_sets()) {
    for (int order = 0; order < 2; ++order) {
      std::vector<float> out(67);
      reduce_kernel(DType::kFloat32, ReduceOp::kPremulSum, set)(out.data(), inputs[order], factors[order], 2,
                                                                out.size());
      for (const float x : out) ASSERT_EQ(x, 0x1p-11f) << name_of(set) << ", order " << order;
    }
  }
}

template <class T>
std::vector<T> reduced(DType dtype, ReduceOp op, InstructionSet set, T a, T b) {
  std::vector<T> first(70, a), second(70, b);
  const void* const inputs[] = {first.data(), second.data()};
  reduce_kernel(dtype, op, set)(first.data(), inputs, kFloatFactors, 2, first.size());
  return first;
}

TEST(Kernels, GiveTheValuesOfTheContract) {
  constexpr uint32_t kOne = 0x3f800000, kNan = 0xffabcdef, kSignaling = 0x7f800001, kMinusZero = 0x80000000;
  for (const InstructionSet set : available_instruction_sets()) {
    SCOPED_TRACE(name_of(set));
    const auto is = [set](auto expected, DType dtype, ReduceOp op, auto a, auto b) {
      using T = decltype(expected);
      for (const T x : reduced<T>(dtype, op, set, static_cast<T>(a), static_cast<T>(b))) {
        ASSERT_EQ(x, expected) << name_of(dtype) << " " << name_of(op);
      }
    };
    is(uint32_t{0x7fc00000}, DType::kFloat32, ReduceOp::kSum, kNan, kSignaling);
    is(uint32_t{0x7fc00000}, DType::kFloat32, ReduceOp::kSum, 0x7f800000u, 0xff800000u);  // inf - inf
    is(uint16_t{0x7e00}, DType::kFloat16, ReduceOp::kSum, 0xfe01, 0x3c00);
    is(uint16_t{0x7fc0}, DType::kBFloat16, ReduceOp::kSum, 0xffab, 0x3f80);
    is(kNan, DType::kFloat32, ReduceOp::kMin, kNan, kOne);
    is(kOne, DType::kFloat32, ReduceOp::kMin, kOne, kNan);
    is(kSignaling, DType::kFloat32, ReduceOp::kMax, kSignaling, kOne);
    is(kMinusZero, DType::kFloat32, ReduceOp::kMax, kMinusZero, 0u);
    is(uint16_t{0x8000}, DType::kFloat16, ReduceOp::kMax, 0x8000, 0);
    is(uint16_t{0xfe01}, DType::kFloat16, ReduceOp::kMin, 0xfe01, 0x3c00);
    is(uint16_t{0x0001}, DType::kBFloat16, ReduceOp::kSum, 0x0001, 0x0000);  // smallest of all, kept
    is(uint16_t{0x3f80}, DType::kBFloat16, ReduceOp::kSum, 0x3f80, 0x3b80);  // 1 + 2^-8: a tie, to even
    is(uint16_t{0x3f82}, DType::kBFloat16, ReduceOp::kSum, 0x3f81, 0x3b80);
    is(int8_t{-1}, DType::kInt8, ReduceOp::kAvg, -2, -1);
    is(int8_t{127}, DType::kInt8, ReduceOp::kAvg, 127, 127);
    is(int64_t{0}, DType::kInt64, ReduceOp::kAvg, -2, 1);
    is(int64_t{-1}, DType::kInt64, ReduceOp::kAvg, -2, -1);
    is(uint64_t{1} << 62, DType::kUInt64, ReduceOp::kAvg, uint64_t{1} << 63, uint64_t{0});
    is(int32_t{-2}, DType::kInt32, ReduceOp::kSum, INT32_MAX, INT32_MAX);
    is(uint8_t{1}, DType::kBool, ReduceOp::kSum, 1, 1);
    is(uint8_t{0}, DType::kBool, ReduceOp::kProduct, 1, 0);
  }
}

TEST(InstructionSets, BestUnlessALesserOneIsWished) {
  const std::vector<InstructionSet> available = available_instruction_sets();
  ASSERT_FALSE(available.empty());
  EXPECT_EQ(available.front(), InstructionSet::kScalar);
  EXPECT_EQ(choose_instruction_set(std::nullopt).set, available.back());
  EXPECT_EQ(choose_instruction_set("").set, available.back());
  for (const InstructionSet set : available) {
    const InstructionSetChoice choice = choose_instruction_set(name_of(set));
    EXPECT_EQ(choice.set, set);
    EXPECT_EQ(choice.warning, "");
  }
}

TEST(InstructionSets, UnknownWishMessage) {
  const std::vector<InstructionSet> available = available_instruction_sets();
  std::string all;
  for (const InstructionSet set : available) all += (all.empty() ? "" : ", ") + std::string(name_of(set));
  const std::string best = name_of(available.back());
  const InstructionSetChoice choice = choose_instruction_set("sse9");
  EXPECT_EQ(choice.set, available.back());
  EXPECT_EQ(choice.warning,
            "COHORT_SHM_INSTRUCTION_SET=\"sse9\" is not one of the instruction sets that this machine has: " + all +
                "; using " + best);
}

TEST(InstructionSets, OneThatThisMachineLacksIsNotUsed) {
  for (int i = 0; i < kNumInstructionSets; ++i) {
    const auto set = static_cast<InstructionSet>(i);
    if (is_available(set)) continue;
    const InstructionSetChoice choice = choose_instruction_set(name_of(set));
    EXPECT_TRUE(is_available(choice.set));
    EXPECT_NE(choice.warning, "");
  }
}

}  // namespace
}  // namespace cohort::shm
