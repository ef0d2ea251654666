#include "cohort/checkpoint/file/scalar_type.h"

#include <algorithm>
#include <iterator>

namespace cohort::checkpoint {
namespace {

using c10::ScalarType;
using files::Dtype;

// The order is that of files::Dtype.
constexpr ScalarType kScalarTypes[] = {
    ScalarType::Bool,
    ScalarType::Byte,
    ScalarType::Char,
    ScalarType::Short,
    ScalarType::UInt16,
    ScalarType::Int,
    ScalarType::UInt32,
    ScalarType::Long,
    ScalarType::UInt64,
    ScalarType::Float8_e4m3fn,
    ScalarType::Float8_e5m2,
    ScalarType::Float8_e4m3fnuz,
    ScalarType::Float8_e5m2fnuz,
    ScalarType::Float8_e8m0fnu,
    ScalarType::Half,
    ScalarType::BFloat16,
    ScalarType::Float,
    ScalarType::Double,
    ScalarType::ComplexHalf,
    ScalarType::ComplexFloat,
    ScalarType::ComplexDouble,
};

}  // namespace

std::optional<Dtype> file_dtype(ScalarType dtype) {
  const auto* found = std::find(std::begin(kScalarTypes), std::end(kScalarTypes), dtype);
  if (found == std::end(kScalarTypes)) return std::nullopt;
  return static_cast<Dtype>(found - std::begin(kScalarTypes));
}

ScalarType scalar_type(Dtype dtype) { return kScalarTypes[static_cast<size_t>(dtype)]; }

}  // namespace cohort::checkpoint
