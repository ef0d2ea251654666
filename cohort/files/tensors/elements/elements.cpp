#include "cohort/files/tensors/elements/elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace cohort::files {
namespace {

// A float format with few bits: sign, exponent, mantissa.
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  /// The largest exponent means infinity and NaN, as in IEEE 754. Otherwise only one pattern is NaN: all ones ("fn"), or the
  /// pattern of minus zero ("fnuz").
  enum class Special : uint8_t { kIeee, kAllOnes, kMinusZero } special = Special::kIeee;
};

constexpr SmallFloat kHalf{5, 10, 15};
constexpr SmallFloat kE4M3Fn{4, 3, 7, SmallFloat::Special::kAllOnes};
constexpr SmallFloat kE5M2{5, 2, 15};
constexpr SmallFloat kE4M3FnUz{4, 3, 8, SmallFloat::Special::kMinusZero};
constexpr SmallFloat kE5M2FnUz{5, 2, 16, SmallFloat::Special::kMinusZero};

double decode(const SmallFloat& format, uint32_t bits) {
  const int num_bits = 1 + format.exponent_bits + format.mantissa_bits;
  const uint32_t sign_bit = 1U << (num_bits - 1), magnitude = bits & (sign_bit - 1);
  const double sign = bits & sign_bit ? -1.0 : 1.0;
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const uint32_t mantissa = magnitude & ((1U << format.mantissa_bits) - 1);
  const bool is_last = exponent == (1 << format.exponent_bits) - 1;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (format.special == SmallFloat::Special::kIeee && is_last) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : kNan;
  }
  if (format.special == SmallFloat::Special::kAllOnes && magnitude == sign_bit - 1) return kNan;
  if (format.special == SmallFloat::Special::kMinusZero && bits == sign_bit) return kNan;
  const double fraction = exponent == 0 ? mantissa : mantissa + (1U << format.mantissa_bits);
  return sign * std::ldexp(fraction, (exponent == 0 ? 1 : exponent) - format.bias - format.mantissa_bits);
}

uint16_t encode_half(double number) {
  const uint16_t sign = std::signbit(number) ? 0x8000 : 0;
  const double size = std::fabs(number);
  if (std::isnan(number)) return sign | 0x7e00;
  if (size == 0) return sign;
  if (size >= 65520.0) return sign | 0x7c00;  // halfway from the largest number to the next power of two
  int exponent = 0;
  std::frexp(size, &exponent);                      // size = f * 2^exponent, f in [0.5, 1)
  const int lowest = std::max(exponent - 11, -24);  // weight of the last bit
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, -lowest)));
  // A mantissa that was rounded up carries into the exponent.
  return sign | static_cast<uint16_t>(lowest == -24 ? units : units + (static_cast<uint32_t>(lowest + 24) << 10));
}

uint16_t encode_bfloat16(double number) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(number));
  if (std::isnan(number)) return 0x7fc0;
  // Rounds to odd first: the float must keep on which side of a tie the number was.
  const float nearest = std::bit_cast<float>(bits);
  uint32_t sticky = bits;
  if (static_cast<double>(nearest) != number && std::isfinite(nearest)) {
    const bool away = std::fabs(static_cast<double>(nearest)) > std::fabs(number);
    sticky = (away ? bits - 1 : bits) | 1;
  }
  return static_cast<uint16_t>((sticky + 0x7fff + ((sticky >> 16) & 1)) >> 16);
}

template <typename T>
T element_at(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
void append_as(std::string_view bytes, std::vector<double>& to) {
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    to.push_back(static_cast<double>(element_at<T>(bytes.data() + i)));
  }
}

template <typename Bits, typename Decode>
void append_decoded(std::string_view bytes, std::vector<double>& to, Decode decode_one) {
  for (size_t i = 0; i + sizeof(Bits) <= bytes.size(); i += sizeof(Bits)) {
    to.push_back(decode_one(element_at<Bits>(bytes.data() + i)));
  }
}

void append_small(const SmallFloat& format, int64_t size, std::string_view bytes, std::vector<double>& to) {
  const auto decode_one = [&](uint32_t bits) { return decode(format, bits); };
  size == 1 ? append_decoded<uint8_t>(bytes, to, decode_one) : append_decoded<uint16_t>(bytes, to, decode_one);
}

template <typename T, typename Encode>
void write_as(std::span<const double> numbers, char* to, Encode encode) {
  for (const double number : numbers) {
    const T value = encode(number);
    std::memcpy(to, &value, sizeof value);
    to += sizeof value;
  }
}

}  // namespace

int components_of(Dtype dtype) {
  return dtype == Dtype::kComplex32 || dtype == Dtype::kComplex64 || dtype == Dtype::kComplex128 ? 2 : 1;
}

bool is_inexact(Dtype dtype) { return dtype >= Dtype::kFloat8E4M3Fn; }

void append_numbers(Dtype dtype, std::string_view bytes, std::vector<double>& to) {
  to.reserve(to.size() + bytes.size() / static_cast<size_t>(info_of(dtype).size) * components_of(dtype));
  switch (dtype) {
    case Dtype::kBool:
    case Dtype::kUInt8:
      return append_as<uint8_t>(bytes, to);
    case Dtype::kInt8:
      return append_as<int8_t>(bytes, to);
    case Dtype::kInt16:
      return append_as<int16_t>(bytes, to);
    case Dtype::kUInt16:
      return append_as<uint16_t>(bytes, to);
    case Dtype::kInt32:
      return append_as<int32_t>(bytes, to);
    case Dtype::kUInt32:
      return append_as<uint32_t>(bytes, to);
    case Dtype::kInt64:
      return append_as<int64_t>(bytes, to);
    case Dtype::kUInt64:
      return append_as<uint64_t>(bytes, to);
    case Dtype::kFloat8E4M3Fn:
      return append_small(kE4M3Fn, 1, bytes, to);
    case Dtype::kFloat8E5M2:
      return append_small(kE5M2, 1, bytes, to);
    case Dtype::kFloat8E4M3FnUz:
      return append_small(kE4M3FnUz, 1, bytes, to);
    case Dtype::kFloat8E5M2FnUz:
      return append_small(kE5M2FnUz, 1, bytes, to);
    case Dtype::kFloat8E8M0Fnu:
      return append_decoded<uint8_t>(bytes, to, [](uint8_t bits) {
        return bits == 0xff ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, bits - 127);
      });
    case Dtype::kFloat16:
    case Dtype::kComplex32:
      return append_small(kHalf, 2, bytes, to);
    case Dtype::kBFloat16:
      return append_decoded<uint16_t>(
          bytes, to, [](uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); });
    case Dtype::kFloat32:
    case Dtype::kComplex64:
      return append_as<float>(bytes, to);
    case Dtype::kFloat64:
    case Dtype::kComplex128:
      return append_as<double>(bytes, to);
  }
}

void write_numbers(Dtype dtype, std::span<const double> numbers, char* to) {
  switch (dtype) {
    case Dtype::kFloat16:
    case Dtype::kComplex32:
      return write_as<uint16_t>(numbers, to, encode_half);
    case Dtype::kBFloat16:
      return write_as<uint16_t>(numbers, to, encode_bfloat16);
    case Dtype::kFloat32:
    case Dtype::kComplex64:
      return write_as<float>(numbers, to, [](double number) { return static_cast<float>(number); });
    default:
      return write_as<double>(numbers, to, [](double number) { return number; });
  }
}

}  // namespace cohort::files
